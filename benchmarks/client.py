"""How exact the measuring client is, and what it costs, against a server that knows when it sent each token.

    python benchmarks/client.py [--case NAME] [--runs 3] [--check]

The truth server (harness/calibrate, in C) runs on the first core, the client on the second, 127.0.0.1 between them.
An error is the client's figure less the server's own, of the same request. Every figure is the median of `--runs`
runs, with the lowest and highest beside it. `--check` exits 1 where a target is missed.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
import psutil
from scipy.stats import kstest

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.limited_memory import LimitedMemory
from harness.calibrate.limits import highest, rate_load, streams_load
from harness.calibrate.loads import Load, Run, drive, two_cores
from harness.calibrate.measuring import language_in_use
from harness.calibrate.server import truth_server

_ROOT = Path(__file__).parents[1]
Figures = dict[str, float]
_WIRE_EVENTS = 5_000_000
_MEMORY_LIMIT = 512 << 20


@dataclass(frozen=True)
class Case:
    """One case: how it is measured, and the most (or, for names that end in ≥, the least) that each figure may be."""

    name: str
    title: str
    measure: Callable[[], Figures]
    targets: Figures
    runs: int | None = None  # where one is enough


def exactness(run: Run) -> Figures:
    reading = run.reading
    return {
        "TTFT error, mean (ms)": abs(reading.errors.ttft.mean),
        "TTFT error, p99 (ms)": reading.errors.ttft.p99,
        "event-gap error, p99 (ms)": reading.errors.gap.p99,
        "requests lost": reading.errors.lost,
    }


def cost(run: Run) -> Figures:
    reading = run.reading
    return {
        "tokens/s": reading.tokens_per_s,
        "events per read": reading.events_per_read,
        "client CPU (µs/token)": reading.client_us,
        "client CPU with parsing (µs/token)": reading.client_us + reading.parse_us,
        "server CPU (share of its core)": reading.server_cpu,
    }


def light() -> Figures:
    run = drive(Load("", 128, 100, 20_000, options={"concurrency": 16}))
    return exactness(run) | {"client CPU (µs/token)": run.reading.client_us}


def busy(tokens_per_s: float, streams: int) -> Figures:
    load = rate_load(tokens_per_s, 6.0, streams)
    run = drive(load)
    return cost(run) | {"a bare uvloop protocol (µs/token)": bare(load, streams)} | exactness(run)


def bare(load: Load, streams: int) -> float:
    """CPU µs per token of a program woken for each that only keeps instants and bytes, on this machine now."""
    server_cpus, client_cpus = two_cores(sorted(os.sched_getaffinity(0)))
    tokens = round(5e6 / load.itl_us)
    with (
        tempfile.TemporaryDirectory() as scratch,
        truth_server(load.schedule, Path(scratch), server_cpus) as server,
    ):
        port, core = server.base_url.rpartition(":")[2], (client_cpus or (0,))[0]
        script = Path(__file__).with_name("bare_client.py")
        command = [sys.executable, str(script), port, str(streams), str(tokens), str(core)]
        return float(subprocess.check_output(command, env={**os.environ, "PYTHONPATH": str(_ROOT)}))


def ceiling() -> Figures:
    found = highest(lambda rate: drive(rate_load(rate, 2.0)).reading, 40_000.0, 640_000.0, 3, "tokens_per_s")
    by_server = found.limited_by == "server"
    return {"tokens/s ≥": found.value, "ended by the server's own limit": float(by_server)}


def many() -> Figures:
    run = drive(streams_load(2000, 10.0))
    return exactness(run) | cost(run) | {"streams at once ≥": run.reading.streams}


def arrivals() -> Figures:
    rate = 200.0
    load = Load("", round(60 * rate), 5, 2_000, kind="poisson", options={"rate": rate, "duration_s": 60.0})
    run = drive(load)

    def fit(instants: str) -> float:
        """Whether the gaps could be of a Poisson process. Of 12,000, a jitter of 0.2 ms in the sends is seen."""
        seconds = np.sort(run.measurement.requests[instants].dropna().to_numpy()) / 1e9
        return float(kstest(np.diff(seconds), "expon", args=(0, 1 / rate)).pvalue)

    return {
        "schedule lag, p99 (ms)": run.reading.lag_p99_ms or 0.0,
        "Kolmogorov-Smirnov p-value ≥": fit("sent_ns"),
        "the same of the schedule": fit("scheduled_ns"),
        "requests lost": run.reading.errors.lost,
    }


def memory() -> Figures:
    tokens = 10_000
    itl_us = 800  # on 64 streams: 80,000 tokens/s
    requests = -(-_WIRE_EVENTS // tokens)
    load = Load("", requests, tokens, itl_us, options={"concurrency": 64})
    limited = LimitedMemory(_MEMORY_LIMIT)
    run = drive(load, measured=limited.measure)
    wire = len(_event_of("measured-100")) * run.reading.tokens
    return {
        "million events ≥": run.reading.tokens / 1e6,
        "bytes per event beyond the wire": (run.journal_bytes - wire) / run.reading.tokens,
        "peak memory of the client (MiB)": run.measurement.client["peak_memory_bytes"] / 2**20,
        "peak memory of the parsing process (MiB)": limited.peak_bytes / 2**20,
        "requests lost": run.reading.errors.lost,
    }


def _event_of(name: str) -> bytes:
    """One token as the truth server sends it, without the chunk's frame."""
    return (
        f'data: {{"id":"cmpl-{name}","object":"text_completion","created":0,"model":"truth","choices":[{{"index":0,'
        '"text":" word","logprobs":null,"finish_reason":null}]}\n\n'
    ).encode()


_COST = {"client CPU (µs/token)": 12.0, "client CPU with parsing (µs/token)": 18.0, "requests lost": 0}
CASES = (
    Case(
        "light",
        "16 streams × 50 tokens/s, 128 requests × 100 tokens, closed loop",
        light,
        {
            "TTFT error, mean (ms)": 0.4,
            "TTFT error, p99 (ms)": 2.0,
            "event-gap error, p99 (ms)": 0.6,
            "requests lost": 0,
        },
    ),
    Case("5k", "5,000 tokens/s on 16 streams", lambda: busy(5_000, 16), _COST),
    Case("32k", "32,000 tokens/s on 64 streams", lambda: busy(32_000, 64), _COST),
    Case(
        "ceiling",
        "highest rate with a mean TTFT error of at most 1 ms, 64 streams",
        ceiling,
        {"tokens/s ≥": 80_000.0},
    ),
    Case(
        "streams",
        "2,000 streams × 10 tokens/s after a ramp of 10 s",
        many,
        {"TTFT error, mean (ms)": 5.0, "requests lost": 0, "streams at once ≥": 2000},
    ),
    Case(
        "poisson",
        "Poisson arrivals, 200 requests/s for 60 s",
        arrivals,
        {"schedule lag, p99 (ms)": 2.0, "Kolmogorov-Smirnov p-value ≥": 0.01, "requests lost": 0},
        runs=1,
    ),
    Case(
        "memory",
        f"5 million events; client and parsing each allocate at most {_MEMORY_LIMIT >> 20} MiB (RLIMIT_DATA)",
        memory,
        {
            "million events ≥": 5.0,
            "bytes per event beyond the wire": 32.0,
            "requests lost": 0,
        },
        runs=1,
    ),
)


def main() -> int:
    options = argparse.ArgumentParser(description="Exactness and cost of the measuring client.")
    options.add_argument("--case", choices=[case.name for case in CASES], help="only this one")
    options.add_argument("--runs", type=int, default=3, help="of each case (default 3)")
    options.add_argument("--check", action="store_true", help="exit 1 where a target is missed")
    chosen = options.parse_args()
    others = psutil.cpu_percent(interval=1.0)
    if others > 10:
        print(
            f"Other programs use {others:.0f} % of this machine: they are in every figure.", file=sys.stderr
        )
    if language_in_use(None) == "python":
        print(
            "No C compiler: the server in Python limits every case, so nothing is checked.", file=sys.stderr
        )
    missed = []
    for case in CASES:
        if chosen.case in (None, case.name):
            missed += show(case, [case.measure() for _ in range(case.runs or max(1, chosen.runs))])
    for line in missed:
        print(f"missed: {line}", file=sys.stderr)
    return 1 if chosen.check and missed else 0


def show(case: Case, runs: list[Figures]) -> list[str]:
    """Print the medians of a case; returns the targets that they miss."""
    print(f"{case.name}: {case.title}")
    missed = []
    for name in runs[0]:
        values = [figures[name] for figures in runs]
        middle = median(values)
        limit = case.targets.get(name)
        line = f"  {name.removesuffix(' ≥'):44}{_number(middle):>10}"
        if len(values) > 1:
            line += f"   {_number(min(values))} … {_number(max(values))}"
        if limit is not None:
            least = name.endswith("≥")
            line += f"   target {'≥' if least else '≤'} {_number(limit)}"
            if not (middle >= limit if least else middle <= limit):
                missed.append(f"{case.name}: {line.strip()}")
        print(line, flush=True)
    return missed


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3f}"


if __name__ == "__main__":
    sys.exit(main())
