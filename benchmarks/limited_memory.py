"""Measures in a child process that the system refuses more than so much memory, as every process it starts."""

import dataclasses
import resource
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pandas as pd

from harness.client import ClientJob, Measurement, measure
from harness.core.errors import HarnessError


class LimitedMemory:
    """A way to measure under a limit; raises MemoryError where that is not enough.

    The limit (RLIMIT_DATA) holds for each process by itself: for the client while the clock runs, and for the child
    that starts it and parses what it left. It counts what a process allocates, not the journal that is mapped from a
    file. peak_bytes: resident memory of the child at its most, mapped files included; known after the call.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.peak_bytes = 0

    def measure(self, job: ClientJob) -> Measurement:
        """What `harness.client.measure` does, in a child of this process."""
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            measurement, self.peak_bytes = pool.submit(_measure_limited, job, self.limit_bytes).result()
        return dataclasses.replace(
            measurement,
            requests=pd.read_parquet(_table(job, "requests")),
            events=pd.read_parquet(_table(job, "events")),
        )


def _measure_limited(job: ClientJob, limit_bytes: int) -> tuple[Measurement, int]:
    """In the child; leaves the tables as files, as a run does, since they would be held twice in a message."""
    resource.setrlimit(resource.RLIMIT_DATA, (limit_bytes, limit_bytes))
    _check_enforced(limit_bytes)
    measurement = measure(job, lambda progress: None)
    for name in ("requests", "events"):
        getattr(measurement, name).to_parquet(_table(job, name), index=False)
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    nothing = pd.DataFrame()
    return dataclasses.replace(measurement, requests=nothing, events=nothing), peak_bytes


def _check_enforced(limit_bytes: int) -> None:
    try:
        bytearray(limit_bytes)
    except MemoryError:
        return
    raise HarnessError("This system does not enforce RLIMIT_DATA, so the memory case says nothing here.")


def _table(job: ClientJob, name: str) -> Path:
    return job.spool / f"{name}.parquet"
