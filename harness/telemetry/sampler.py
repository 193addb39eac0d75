"""Samples memory, CPU, KV gauges, GPU and energy beside the measurement, on the client's clock.

A thread in the harness's main process, which does not measure latency. Each source says what one look cost; a
source that is dear is asked less often, so that the sampling stays under one percent of a core.
"""

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pandas as pd

from harness.records.schema import TELEMETRY_COLUMNS

BUSIEST_SHARE = 0.01  # of one core, over all sources


class Source(Protocol):
    """Something that can be looked at: one row's worth of named values, or {} where nothing can be read.

    weight: its part of the CPU time that sampling may take, relative to the other sources.
    """

    weight: float

    def read(self) -> dict[str, float]:
        """Current values. Whatever it raises counts as nothing read."""
        ...


@dataclass
class _Schedule:
    """When a source is due again, given what its looks cost so far."""

    source: Source
    share: float
    due: float = 0.0

    def look(self, now: float, interval_s: float) -> dict[str, float]:
        cpu_before = time.thread_time()
        try:
            values = self.source.read()
        except Exception:  # NVML has a family of its own; one source must not end them all
            values = {}
        cost = time.thread_time() - cpu_before
        self.due = now + max(interval_s, cost / self.share)
        return values


@dataclass
class Sampler:
    """Collects rows until stopped. Use as a context manager; `frame()` afterwards."""

    sources: Sequence[Source]
    interval_s: float = 0.5
    _rows: list[dict[str, float]] = field(default_factory=list, init=False)
    _stop: threading.Event = field(default_factory=threading.Event, init=False)
    _thread: threading.Thread | None = field(default=None, init=False)

    def __enter__(self) -> "Sampler":
        self._thread = threading.Thread(target=self._run, name="telemetry", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        if self._thread:
            self._thread.join()

    def _run(self) -> None:
        total = sum(source.weight for source in self.sources)
        schedules = [_Schedule(source, BUSIEST_SHARE * source.weight / total) for source in self.sources]
        while True:
            now = time.monotonic()
            row: dict[str, float] = {"ns": time.monotonic_ns()}
            for schedule in schedules:
                if now >= schedule.due:
                    row.update(schedule.look(now, self.interval_s))
            if len(row) > 1:
                self._rows.append(row)
            # Asked for once more after the stop, so that even a short run has its last state.
            if self._stop.is_set():
                return
            self._stop.wait(self.interval_s)

    def latest(self, name: str) -> float | None:
        """The newest value of a column, for the live line."""
        for row in reversed(self._rows):
            if name in row:
                return row[name]
        return None

    def frame(self) -> pd.DataFrame:
        """All rows so far with the columns of `TELEMETRY_COLUMNS` first; what was never read is missing."""
        frame = pd.DataFrame(self._rows)
        for column, kind in TELEMETRY_COLUMNS.items():
            values = frame[column] if column in frame else pd.Series([None] * len(frame), dtype="object")
            if kind.startswith(("int", "Int")):
                frame[column] = pd.to_numeric(values).round().astype(kind if len(frame) else "Int64")
            else:
                frame[column] = pd.to_numeric(values).astype(kind)
        extra = [str(column) for column in frame if column not in TELEMETRY_COLUMNS]
        return frame[[*TELEMETRY_COLUMNS, *sorted(extra)]]
