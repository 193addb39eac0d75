"""What measuring costs the client itself: CPU time, and how late its event loop wakes."""

import gc
import os
import resource
import time
from array import array
from pathlib import Path
from typing import Any

from harness.client.timeline import Timeline

_BEAT_NS = 50_000_000


def _peak_memory() -> int | None:
    """Most memory this process has held (VmHWM, which unlike getrusage's figure starts anew with it)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return None


class Vitals:
    """Beats every 50 ms and keeps by how much each beat was late."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._lags = array("q")
        self._due_ns = 0
        self._cpu_ns = 0
        self._started_ns = 0
        self._switches = 0
        self._stopped: dict[str, Any] | None = None

    @staticmethod
    def settle() -> None:
        """Freeze what exists out of the garbage collector's sight and turn it off (slow, of a large load)."""
        gc.collect()
        gc.freeze()
        gc.disable()

    def start(self) -> None:
        """Start to count."""
        self._started_ns = time.monotonic_ns()
        self._cpu_ns = time.process_time_ns()
        self._switches = resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw
        self._next(self._started_ns)

    def stop(self) -> None:
        """End of the window: figures no longer change."""
        if self._stopped is not None:
            return
        seconds = max(time.monotonic_ns() - self._started_ns, 1) / 1e9
        cpu_s = (time.process_time_ns() - self._cpu_ns) / 1e9
        lags = sorted(self._lags)
        self._stopped = {
            "cpu_s": cpu_s,
            "cpu_share": cpu_s / seconds,
            "lag_max_ms": lags[-1] / 1e6 if lags else None,
            "lag_p99_ms": lags[(len(lags) - 1) * 99 // 100] / 1e6 if lags else None,
            "preempted": resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw - self._switches,
            "gc_enabled": gc.isenabled(),
            "cpus": sorted(os.sched_getaffinity(0)),
            "peak_memory_bytes": _peak_memory(),
        }

    def figures(self) -> dict[str, Any]:
        """CPU seconds and share of a core, maximum and p99 lag in ms, times the kernel took the core away."""
        self.stop()
        return dict(self._stopped or {})

    def _next(self, now: int) -> None:
        self._due_ns = now + _BEAT_NS
        self._timeline.call_at(self._due_ns, self._beat)

    def _beat(self) -> None:
        now = time.monotonic_ns()
        if self._stopped is None:
            self._lags.append(now - self._due_ns)
            self._next(now)
