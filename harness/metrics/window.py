"""The measured window: what is inside a run's figures, and its steady part."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from harness.metrics.latency import is_measured, measured

NS_PER_S = 1_000_000_000
STEADY_SHARE = 0.9  # of the target concurrency
_INSTANTS = ["end_ns", "last_ns", "first_ns", "headers_ns", "sent_ns", "scheduled_ns"]


@dataclass(frozen=True, slots=True)
class Window:
    """From start_ns to end_ns, both included.

    bounded_by: "time" or "count". concurrency: sessions in flight that the load aimed at, None where it
    had no such target (open loop).
    """

    start_ns: int
    end_ns: int
    bounded_by: str
    concurrency: int | None = None

    @property
    def seconds(self) -> float:
        """Its length."""
        return (self.end_ns - self.start_ns) / NS_PER_S

    def holds(self, instants: pd.Series) -> np.ndarray:
        """Which instants (ns, missing ones allowed) lie inside, as a mask."""
        inside = (instants >= self.start_ns) & (instants <= self.end_ns)
        return inside.to_numpy(dtype=bool, na_value=False)

    def requests(self, requests: pd.DataFrame) -> pd.DataFrame:
        """The measured requests *scheduled* inside: those that latency percentiles count."""
        return requests[is_measured(requests) & self.holds(requests["scheduled_ns"])]

    def to_record(self) -> dict[str, Any]:
        """For run.json."""
        return {
            "start_ns": self.start_ns,
            "end_ns": self.end_ns,
            "seconds": self.seconds,
            "bounded_by": self.bounded_by,
            "concurrency": self.concurrency,
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "Window":
        """Inverse of `to_record`."""
        return cls(record["start_ns"], record["end_ns"], record["bounded_by"], record.get("concurrency"))


def measured_window(
    requests: pd.DataFrame, closed_ns: int | None = None, concurrency: int | None = None
) -> Window | None:
    """The window of a run, or None where no measured request was ever scheduled.

    It opens at the first measured `scheduled`. closed_ns: when the client closed it, since its time was up; what
    still ran then is drained outside it. None where the run ended by count or was interrupted: it closes at the last
    `end`, or the last thing that happened to a request without one.
    """
    rows = measured(requests)
    scheduled = rows["scheduled_ns"].dropna()
    if scheduled.empty:
        return None
    start = int(scheduled.min())
    if closed_ns is not None:
        return Window(start, max(start, closed_ns), "time", concurrency)
    return Window(start, int(rows[_INSTANTS].max().max()), "count", concurrency)


def session_spans(requests: pd.DataFrame) -> pd.DataFrame:
    """`start_ns` and `end_ns` of each measured session: first `scheduled` to last `end`, pauses included."""
    rows = measured(requests)
    grouped = pd.DataFrame(
        {"session": rows["session"], "start_ns": rows["scheduled_ns"], "end_ns": rows[_INSTANTS].max(axis=1)}
    ).groupby("session")
    return grouped.agg({"start_ns": "min", "end_ns": "max"}).dropna().astype("int64")


def in_flight(starts: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How many intervals [start, end) are open: instants of change, and the count from each instant on."""
    instants = np.concatenate([starts, ends])
    changes = np.concatenate([np.ones(len(starts), dtype=int), -np.ones(len(ends), dtype=int)])
    unique, position = np.unique(instants, return_inverse=True)
    return unique, np.cumsum(np.bincount(position, weights=changes, minlength=len(unique))).astype(int)


def steady_intervals(requests: pd.DataFrame, window: Window) -> list[tuple[int, int]]:
    """The parts of the window, as (start_ns, end_ns), in which sessions in flight are ≥ 90 % of the target.

    Empty where the load had no target, or never reached it.
    """
    spans = session_spans(requests)
    if window.concurrency is None or spans.empty:
        return []
    instants, counts = in_flight(spans["start_ns"].to_numpy(), spans["end_ns"].to_numpy())
    instants = np.clip(instants, window.start_ns, window.end_ns)
    intervals: list[tuple[int, int]] = []
    for start, end, count in zip(instants[:-1], instants[1:], counts[:-1], strict=True):
        if count < STEADY_SHARE * window.concurrency or start == end:
            continue
        if intervals and intervals[-1][1] == start:
            intervals[-1] = (intervals[-1][0], int(end))
        else:
            intervals.append((int(start), int(end)))
    return intervals
