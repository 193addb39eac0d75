"""The figures of a report, each with the data it was drawn from.

Every function takes the runs in order of their colours and returns a Figure, or None where no run has the
data.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from harness.core.metric_names import KV_RESERVED_BYTES, KV_USED_BYTES, REQUESTS_RUNNING
from harness.metrics.latency import latencies
from harness.metrics.resources import column
from harness.metrics.summary import gaps_in_window
from harness.metrics.throughput import concurrency, tokens_over_time
from harness.metrics.window import NS_PER_S, Window
from harness.records.reader import Run
from harness.report.axis import WIDE_RANGE, log_axis, whole_numbers
from harness.report.canvas import drawing
from harness.report.figure import Coloured, Figure
from harness.report.palette import run_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_PARTS = (12, 60)  # fewest and most parts of a window; in between a second each
_MOST_POINTS = 400  # of one line: more cannot be seen at this size
_SHORTEST_GAP_MS = 0.01  # a logarithmic axis has no 0: gaps of events read at once stand here
_MB = 1e6
_PER_REQUEST = "kv_per_request_bytes"


def ttft_distribution(runs: Sequence[Coloured]) -> Figure | None:
    """Share of requests whose first token had come by then."""

    def values(run: Run) -> np.ndarray:
        return latencies(_window(run).requests(run.requests))["ttft_ms"].dropna().to_numpy()

    def decorate(axes: "Axes") -> None:
        axes.set(xlabel="time to first token from schedule, ms", ylabel="share of requests", ylim=(0, 1.02))

    return _distribution(
        runs,
        values,
        decorate,
        rising=True,
        name="ttft",
        title="Time to first token",
        reading="How many of the requests had their first token by then. Further left is faster; "
        "a long tail to the right means that some users wait much longer than most.",
    )


def token_gaps(runs: Sequence[Coloured]) -> Figure | None:
    """Share of event gaps that are longer, both axes logarithmic."""

    def values(run: Run) -> np.ndarray:
        gaps = gaps_in_window(run.requests, run.events, _window(run))
        return np.maximum(gaps, _SHORTEST_GAP_MS)

    def decorate(axes: "Axes") -> None:
        axes.set(xlabel="gap between events, ms", ylabel="share of longer gaps", yscale="log")
        axes.set_yticks([1, 0.1, 0.01, 0.001], ["all", "1 in 10", "1 in 100", "1 in 1000"])
        axes.set_yticks([], minor=True)
        axes.set_ylim(7e-4, 1.3)

    return _distribution(
        runs,
        values,
        decorate,
        rising=False,
        name="gaps",
        title="Gaps between tokens",
        reading="How many gaps within an answer are longer than that. Where a line crosses “1 in 100” is the "
        "p99 gap: the stutter a reader notices.",
    )


def load_over_time(runs: Sequence[Coloured]) -> Figure | None:
    """Token rate and requests in flight since the window opened."""
    drawn = [(series, run) for series, run in runs if len(run.events) and run.window]
    if not drawn:
        return None
    figure, (upper, lower) = drawing(panels=2, height=3.9)
    data = []
    for series, run in drawn:
        window = _window(run)
        bins = int(np.clip(window.seconds, *_PARTS))
        frame = tokens_over_time(run.events, window, bins)
        frame.insert(0, "run", run.id)
        frame["second"] = _since(frame.pop("ns"), window) + window.seconds / bins / 2
        frame["requests_in_flight"] = _mean_in_flight(run, window, bins)
        upper.plot(frame["second"], frame["tokens_per_s"], **run_style(series))
        lower.plot(frame["second"], frame["requests_in_flight"], **run_style(series))
        data.append(frame)
    upper.set(ylabel="output tokens/s", ylim=(0, None), xlim=(0, None))
    whole_numbers(lower, "y")
    lower.set(ylabel="in flight", xlabel="seconds of the measured window", ylim=(0, None))
    return Figure(
        name="load",
        title="Throughput and concurrency over time",
        reading="Above, output tokens per second; below, requests in flight, both averaged over equal "
        "parts. A steady run is level until its last requests finish alone.",
        drawn=figure,
        data=pd.concat(data, ignore_index=True),
        series=sorted({series for series, _ in drawn}),
    )


def memory_over_time(runs: Sequence[Coloured]) -> Figure | None:
    """KV cache in use and the memory of the engine's processes since the window opened."""
    with_kv, with_requests, with_memory, data = [], [], [], []
    for series, run in runs:
        if not run.window or run.telemetry.empty:
            continue
        window = _window(run)
        rows = _thinned(run.telemetry[window.holds(run.telemetry["ns"])], _MOST_POINTS)
        frame = pd.DataFrame({"run": run.id, "second": _since(rows["ns"], window)})
        for name in (KV_USED_BYTES, KV_RESERVED_BYTES, "pss_bytes", REQUESTS_RUNNING):
            frame[name] = column(rows, name)
        running = frame[REQUESTS_RUNNING].where(frame[REQUESTS_RUNNING] > 0)
        frame[_PER_REQUEST] = frame[KV_USED_BYTES] / running
        if frame[KV_USED_BYTES].notna().any():
            with_kv.append((series, frame))
        if frame[_PER_REQUEST].notna().any():
            with_requests.append((series, frame))
        if frame["pss_bytes"].notna().any():
            with_memory.append((series, frame))
        data.append(frame)
    panels = [
        (KV_USED_BYTES, "KV used, MB", with_kv),
        (_PER_REQUEST, "of a request, MB", with_requests),
        ("pss_bytes", "engine memory, MB", with_memory),
    ]
    panels = [panel for panel in panels if panel[2]]
    if not panels:
        return None
    figure, axes = drawing(panels=len(panels), height=1.5 + 1.2 * len(panels))
    for panel, (name, label, frames) in zip(axes, panels, strict=True):
        for series, frame in frames:
            known = frame[frame[name].notna()]
            panel.plot(known["second"], known[name] / _MB, **run_style(series))
        panel.set(ylabel=label, ylim=(0, None), xlim=(0, None))
    axes[-1].set_xlabel("seconds of the measured window")
    missing = "" if with_kv else " None of these engines reports its KV cache."
    return Figure(
        name="memory",
        title="Memory over time",
        reading="Live entries of the KV cache as the engine reports them, in all and of a running request on "
        f"average, and the memory of all its processes.{missing}",
        drawn=figure,
        data=pd.concat(data, ignore_index=True),
        series=sorted({series for _, _, frames in panels for series, _ in frames}),
    )


def _distribution(
    runs: Sequence[Coloured],
    values_of: Callable[[Run], np.ndarray],
    decorate: Callable[["Axes"], None],
    rising: bool,
    name: str,
    title: str,
    reading: str,
) -> Figure | None:
    """One cumulative line a run: the share that is at most (rising) or more than (not rising) a value."""
    lines = []
    for series, run in runs:
        values = np.sort(values_of(run)) if run.window and len(run.requests) else np.array([])
        if len(values):
            lines.append((series, run, *_cumulative(values, rising)))
    if not lines:
        return None
    figure, (axes,) = drawing()
    low = min(values.min() for _, _, values, _ in lines)
    high = max(values.max() for _, _, values, _ in lines)
    if low > 0 and high / low > WIDE_RANGE:
        log_axis(axes, "x")
    for series, _, values, shares in lines:
        axes.step(values, shares, where="post", **run_style(series))
    decorate(axes)
    frames = [pd.DataFrame({"run": run.id, "ms": v, "share": shares}) for _, run, v, shares in lines]
    drawn = sorted({series for series, *_ in lines})
    data = pd.concat(frames, ignore_index=True)
    return Figure(name, title, reading, figure, data, drawn)


def _cumulative(ordered: np.ndarray, rising: bool) -> tuple[np.ndarray, np.ndarray]:
    """Values and shares to draw, at most _MOST_POINTS of them, denser towards the end of the tail."""
    n = len(ordered)
    ranks = np.arange(n)
    if n > _MOST_POINTS:
        even = np.linspace(0, n - 1, _MOST_POINTS // 2)
        tail = n - np.geomspace(1, n, _MOST_POINTS // 2)
        ranks = np.unique(np.concatenate([even, tail]).astype(int))
    shares = (ranks + 1) / n if rising else 1 - (ranks + 1) / n
    values = ordered[ranks]
    if rising:
        return np.concatenate([values[:1], values]), np.concatenate([[0.0], shares])
    kept = shares > 0  # nothing is longer than the longest: log 0
    return np.concatenate([values[:1], values[kept]]), np.concatenate([[1.0], shares[kept]])


def _window(run: Run) -> Window:
    return Window.from_record(run.window)


def _since(instants: pd.Series, window: Window) -> np.ndarray:
    return (instants.to_numpy(dtype="int64") - window.start_ns) / NS_PER_S


def _thinned(frame: pd.DataFrame, most: int) -> pd.DataFrame:
    """Every n-th row, so that at most about `most` are left; the last is always among them."""
    if len(frame) <= most:
        return frame
    return frame.iloc[np.unique(np.linspace(0, len(frame) - 1, most).astype(int))]


def _mean_in_flight(run: Run, window: Window, bins: int) -> np.ndarray:
    """Requests in flight, averaged over equal parts of the window."""
    flights = concurrency(run.requests)
    if flights.empty:
        return np.zeros(bins)
    ns, counts = flights["ns"].to_numpy(dtype=float), flights["requests"].to_numpy(dtype=float)
    request_ns = np.concatenate([[0.0], np.cumsum(np.diff(ns) * counts[:-1])])  # integral up to each instant
    edges = np.linspace(window.start_ns, window.end_ns, bins + 1)
    return np.diff(np.interp(edges, ns, request_ns)) / np.diff(edges)
