"""What a report over many runs takes: time, size, memory. python benchmarks/report.py [--check]"""

import argparse
import resource
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from harness.records.reader import find_runs
from harness.report import write_report
from tests.support.synthetic_runs import Schedule, write_run

RUNS, REQUESTS, EVENTS = 50, 2000, 64
MOST_SECONDS, MOST_MB, MOST_MEMORY_GB = 15.0, 5.0, 1.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="exit 1 where a target is missed")
    check = parser.parse_args().check
    with tempfile.TemporaryDirectory() as name:
        results = Path(name)
        for index in range(RUNS):
            schedule = Schedule(requests=REQUESTS, tokens=EVENTS, slots=16, jitter=0.3, seed=index)
            write_run(results, f"r{index}", schedule)
        started = time.perf_counter()
        path = write_report(find_runs(["r*"], results), results / "report")
        seconds = time.perf_counter() - started
        megabytes = path.stat().st_size / 1e6
        data, figures = (
            sum(file.stat().st_size for file in (results / "report" / beside).iterdir()) / 1e6
            for beside in ("data", "figures")
        )
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"report over {RUNS} runs of {REQUESTS} requests, {EVENTS} events each")
    print(f"  time  {seconds:5.2f} s   (target: at most {MOST_SECONDS:g})")
    print(f"  page  {megabytes:5.2f} MB  (target: at most {MOST_MB:g})")
    print(f"  beside it: data {data:.2f} MB, figures {figures:.2f} MB")
    print(f"  peak  {memory:5.2f} GB  (target: at most {MOST_MEMORY_GB:g}), the making of the runs included")
    missed = seconds > MOST_SECONDS or megabytes > MOST_MB or memory > MOST_MEMORY_GB
    return 1 if check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
