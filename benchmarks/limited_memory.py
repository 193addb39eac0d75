"""Measures in a child process that the system refuses more than so much memory, as every process it starts.

It runs this file as a program, which gets a job and a limit over standard input and leaves the tables in the job's
folder, as a run does.
"""

import dataclasses
import os
import pickle
import resource
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from harness.client import ClientJob, Measurement, measure
from harness.core.errors import HarnessError

_ROOT = Path(__file__).parents[1]


class LimitedMemory:
    """A way to measure under a limit; raises HarnessError where that is not enough.

    The limit (RLIMIT_DATA) holds for each process by itself: for the client while the clock runs, and for the child
    that starts it and parses what it left. It counts what a process allocates, libraries included, not the journal
    that is mapped from a file. peak_bytes: resident memory of the child at its most, mapped files included; known
    after the call.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.peak_bytes = 0

    def measure(self, job: ClientJob) -> Measurement:
        """What `harness.client.measure` does, in a child of this process."""
        import pandas as pd

        job.spool.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            [sys.executable, __file__],
            input=pickle.dumps((job, self.limit_bytes)),
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(_ROOT)},
            check=False,
        )
        if done.returncode:
            raise HarnessError(
                f"{self.limit_bytes >> 20} MiB were not enough, or it broke off; its words are above."
            )
        measurement, self.peak_bytes = pickle.loads(done.stdout)
        return dataclasses.replace(
            measurement,
            requests=pd.read_parquet(_table(job, "requests")),
            events=pd.read_parquet(_table(job, "events")),
        )


def main() -> None:
    """In the child."""
    job, limit_bytes = pickle.load(sys.stdin.buffer)
    resource.setrlimit(resource.RLIMIT_DATA, (limit_bytes, limit_bytes))
    _check_enforced(limit_bytes)
    measurement = measure(job, lambda progress: None)
    for name in ("requests", "events"):
        getattr(measurement, name).to_parquet(_table(job, name), index=False)
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    nothing = measurement.requests.head(0)
    sys.stdout.buffer.write(
        pickle.dumps((dataclasses.replace(measurement, requests=nothing, events=nothing), peak_bytes))
    )


def _check_enforced(limit_bytes: int) -> None:
    try:
        bytearray(limit_bytes)
    except MemoryError:
        return
    raise HarnessError("This system does not enforce RLIMIT_DATA, so the memory case says nothing here.")


def _table(job: ClientJob, name: str) -> Path:
    return job.spool / f"{name}.parquet"


if __name__ == "__main__":
    main()
