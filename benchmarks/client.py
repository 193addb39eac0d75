"""How exact the measuring client is, and what it costs, against a server that knows when it sent each token.

    python benchmarks/client.py [--check]

Prints, for each case: the error of TTFT (client's first − sent, less the server's own first − received), the error of
the gaps between events, both in ms, and the client's CPU time per token. `--check` exits 1 where a target is missed.
The server is the test suite's, in Python; where it cannot keep its own schedule, a line says so, and that case then
loads the client less than its title states.
"""

import argparse
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil

sys.path.insert(0, str(Path(__file__).parents[1]))

from harness.client import Measurement, measure
from tests.support.client_jobs import job, load, plan, quiet
from tests.support.fixtures import ScriptedServer, scripted_server
from tests.support.scripts import Script


@dataclass(frozen=True)
class Case:
    """A closed loop of `streams`; TTFT and gap in ms."""

    title: str
    streams: int
    requests: int
    tokens: int
    ttft_ms: float
    gap_ms: float
    targets: dict[str, float]


CASES = (
    Case(
        "16 streams × 50 tokens/s", 16, 128, 100, 20, 20, {"ttft mean": 0.4, "ttft p99": 2.0, "gap p99": 0.6}
    ),
    Case("64 streams × 100 tokens/s", 64, 128, 300, 20, 10, {}),
)


def main() -> int:
    options = argparse.ArgumentParser(description="Exactness and cost of the measuring client.")
    options.add_argument("--check", action="store_true", help="exit 1 where a target is missed")
    check = options.parse_args().check
    busy = psutil.cpu_percent(interval=1.0)
    if busy > 10:
        print(
            f"Other programs use {busy:.0f} % of this machine: they are in every figure below.",
            file=sys.stderr,
        )
    missed = [line for case in CASES for line in run(case)]
    for line in missed:
        print(f"missed: {line}", file=sys.stderr)
    return 1 if check and missed else 0


def run(case: Case) -> list[str]:
    """Measure one case, print it, and return the targets it missed."""
    cores = sorted(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as spool, scripted_server() as server:
        own = (cores[-1],) if len(cores) > 1 else None
        if own is not None:
            os.sched_setaffinity(server.process.pid, cores[:-1])
        # TTFTs differ by a part of a gap, so that the streams do not march in step: the server reads in Python,
        # and would find simultaneous requests one after the other, late by its own doing.
        scripts = {
            index: Script(ttft_ms=ttft_of(case, index), itl_ms=case.gap_ms) for index in range(case.requests)
        }
        server.play(by_key=scripts)
        before = psutil.Process(server.process.pid).cpu_times()
        requests = plan(case.requests, tokens=case.tokens)
        options = load(concurrency=case.streams)
        measured = measure(job(server.base_url, requests, Path(spool), options, cpus=own), quiet)
        after = psutil.Process(server.process.pid).cpu_times()
        server_cpu_s = after.user + after.system - before.user - before.system
        return report(case, measured, server, server_cpu_s)


def ttft_of(case: Case, index: int) -> float:
    """The scripted TTFT of a request in ms."""
    return case.ttft_ms + case.gap_ms * (index % case.streams) / case.streams


def report(case: Case, measured: Measurement, server: ScriptedServer, server_cpu_s: float) -> list[str]:
    rows = measured.requests.set_index("index")
    events = {int(str(index)): group["ns"].to_numpy() for index, group in measured.events.groupby("index")}
    ttft_errors, gap_errors, slips, ways = [], [], [], []
    for entry in server.record():
        index, sends = int(entry["key"]), np.array(entry["sends"])
        row = rows.loc[index]
        ttft_errors.append((row["first_ns"] - row["sent_ns"]) - (sends[0] - entry["received_ns"]))
        gap_errors.extend(np.abs(np.diff(events[index]) - np.diff(sends)))
        planned = entry["headers_ns"] + 1e6 * (ttft_of(case, index) + case.gap_ms * np.arange(len(sends)))
        ways.append((entry["received_ns"] - row["sent_ns"], row["first_ns"] - sends[0]))
        slips.extend(sends - planned)
    ttft, gap, slip = (np.array(values, dtype=float) / 1e6 for values in (ttft_errors, gap_errors, slips))
    found = {
        "ttft mean": float(ttft.mean()),
        "ttft p99": float(np.percentile(ttft, 99)),
        "gap p99": float(np.percentile(gap, 99)),
    }
    seconds = (measured.window_end_ns - measured.window_start_ns) / 1e9
    tokens = int(measured.events["tokens"].sum())
    cost = 1e6 * measured.client["cpu_s"] / tokens
    print(f"{case.title}: {case.requests} requests × {case.tokens} tokens, {tokens / seconds:,.0f} tokens/s")
    print(f"  TTFT error   mean {found['ttft mean']:.3f} ms   p99 {found['ttft p99']:.3f} ms")
    there, back = np.array(ways, dtype=float).mean(axis=0) / 1e6
    print(
        f"    of its mean: {there:.3f} ms until the server had read the request, {back:.3f} ms for the token"
    )
    print(f"  gap error    p99 {found['gap p99']:.3f} ms   largest {gap.max():.3f} ms")
    print(f"  client CPU   {cost:.1f} µs per token, {100 * measured.client['cpu_share']:.1f} % of a core")
    lag = f"p99 {measured.client['lag_p99_ms']:.3f} ms   largest {measured.client['lag_max_ms']:.3f} ms"
    print(f"  client loop  lag {lag}")
    share = server_cpu_s / seconds
    late = float(np.percentile(slip, 99))
    print(f"  server       {100 * share:.0f} % of a core, p99 {late:.1f} ms behind its own schedule")
    if share > 0.9 or late > case.gap_ms:
        print("  the server is saturated: this case says little about the client")
    failed = int((~measured.requests["ok"]).sum())
    missed = [f"{case.title}: {failed} requests failed"] if failed else []
    for name, limit in case.targets.items():
        if found[name] > limit:
            missed.append(f"{case.title}: {name} error {found[name]:.3f} ms, target {limit:g} ms")
    return missed


if __name__ == "__main__":
    sys.exit(main())
