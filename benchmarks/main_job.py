"""`make bench` as a stranger meets it: a fresh clone, an empty model cache, then once more with all in place.

Prints the seconds of both calls; --check exits 1 where a target is missed. Takes several minutes, and the package
registry must be reachable.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
TARGETS_S = {"from a clean clone": 360.0, "the run itself": 180.0}


def timed(folder: Path, cache: Path) -> float:
    environment = {**os.environ, "INFERENCE_HARNESS_CACHE": str(cache)}
    started = time.perf_counter()
    subprocess.run(["make", "bench"], cwd=folder, env=environment, check=True)
    return time.perf_counter() - started


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="exit 1 where a target is missed")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        clone = Path(scratch) / "clone"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        seconds = {
            "from a clean clone": timed(clone, Path(scratch) / "cache"),
            "the run itself": timed(clone, Path(scratch) / "cache"),
        }
    missed = False
    for what, target in TARGETS_S.items():
        missed |= seconds[what] > target
        print(f"make bench, {what}: {seconds[what]:.0f} s (target {target:.0f} s)")
    return int(arguments.check and missed)


if __name__ == "__main__":
    sys.exit(main())
