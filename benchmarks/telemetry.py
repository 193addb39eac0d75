"""What looking on costs: the CPU time of the telemetry thread beside a process tree as large as an engine's.

    python benchmarks/telemetry.py [--gigabytes 1.5] [--seconds 30] [--check]

The tree is a process with one child; each holds half of the memory, every page written. This process does nothing
but sample it, so its CPU time over the wall time is the sampler's share of a core. `--check` exits 1 above the
target.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd

sys.path.insert(0, str(Path(__file__).parents[1]))

from harness.core.tls import Trust
from harness.telemetry.sampler import Sampler
from harness.telemetry.sources import EngineMetrics, ProcessTree, optional_sources
from tests.support.fixtures import scripted_server

TARGET = 0.01  # of one core
_HOLDER = """
import subprocess, sys
size = int(sys.argv[1])
again = [sys.executable, *sys.orig_argv[1:-1], "leaf"]
child = subprocess.Popen(again, stdin=subprocess.PIPE) if sys.argv[2] == "root" else None
held = bytearray(size)
held[::4096] = b"x" * len(held[::4096])
if child is None:
    print("held", flush=True)
sys.stdin.read()
"""


def main() -> int:
    parser = argparse.ArgumentParser(description="What telemetry costs.")
    parser.add_argument("--gigabytes", type=float, default=1.5, help="memory of the process tree")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--check", action="store_true", help=f"exit 1 above {TARGET:.0%} of a core")
    options = parser.parse_args()
    each = int(options.gigabytes * 1e9 / 2)
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(each), "root"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        if holder.stdout is None or holder.stdout.readline() != b"held\n":
            print("The process tree could not take its memory.", file=sys.stderr)
            return 1
        with scripted_server() as server:
            share, frame = sample(holder.pid, server.base_url, options.seconds)
    finally:
        holder.kill()
        holder.wait()
    looked = frame["pss_bytes"].dropna()
    print(
        f"process tree: {looked.max() / 1e9:.2f} GB (PSS), {len(looked)} looks at its memory in {options.seconds:g} s"
    )
    print(f"/metrics: {len(frame)} rows; columns: {', '.join(frame.columns[frame.notna().any()])}")
    print(f"telemetry: {share:.2%} of one core (target {TARGET:.0%})")
    return int(options.check and share > TARGET)


def sample(pid: int, base_url: str, seconds: float) -> tuple[float, pd.DataFrame]:
    """Sample for so long; returns the share of a core and the frame."""
    tree = ProcessTree(pid)
    metrics = EngineMetrics(base_url + "/metrics", {}, lambda text: {"seen": float(len(text))}, Trust())
    sources = [tree, metrics, *optional_sources(tree.pids)]
    started, before = time.monotonic(), time.process_time()
    with Sampler(sources) as sampler:
        time.sleep(seconds)
    share = (time.process_time() - before) / (time.monotonic() - started)
    return share, sampler.frame()


if __name__ == "__main__":
    sys.exit(main())
