"""How long `python -m harness --help` takes. Prints the median; --check exits 1 above the target."""

import argparse
import statistics
import subprocess
import sys
import time

TARGET_S = 0.5
REPEATS = 15


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help=f"exit 1 above {TARGET_S} s")
    arguments = parser.parse_args()
    seconds = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        subprocess.run([sys.executable, "-m", "harness", "--help"], check=True, stdout=subprocess.DEVNULL)
        seconds.append(time.perf_counter() - started)
    median = statistics.median(seconds)
    print(f"python -m harness --help: median {median:.3f} s, max {max(seconds):.3f} s (target {TARGET_S} s)")
    return int(arguments.check and median > TARGET_S)


if __name__ == "__main__":
    sys.exit(main())
