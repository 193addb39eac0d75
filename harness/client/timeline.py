"""Calls at exact instants of CLOCK_MONOTONIC.

uvloop's own timers count whole milliseconds, which an arrival process would show as schedule lag. A timerfd
wakes the loop within tens of microseconds.
"""

import asyncio
import ctypes
import heapq
import itertools
import os
import time
from collections.abc import Callable
from typing import Any

_CLOCK_MONOTONIC, _NONBLOCK, _CLOEXEC, _ABSOLUTE = 1, 0o4000, 0o2000000, 1


class _Instant(ctypes.Structure):
    _fields_ = [
        ("interval_s", ctypes.c_long),
        ("interval_ns", ctypes.c_long),
        ("value_s", ctypes.c_long),
        ("value_ns", ctypes.c_long),
    ]


class Timeline:
    """A heap of calls and one timerfd set to the earliest of them."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd: int = self._libc.timerfd_create(_CLOCK_MONOTONIC, _NONBLOCK | _CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        self._heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = itertools.count()
        self._loop = loop
        loop.add_reader(self._fd, self._ring)

    def call_at(self, ns: int, call: Callable[..., None], *arguments: Any) -> None:
        """Call `call(*arguments)` at `ns`, or at once if that is past. Equal instants keep their order."""
        heapq.heappush(self._heap, (ns, next(self._order), call, arguments))
        if self._heap[0][0] == ns:
            self._arm()

    def close(self) -> None:
        """Forget all calls."""
        self._loop.remove_reader(self._fd)
        os.close(self._fd)

    def _ring(self) -> None:
        try:
            os.read(self._fd, 8)
        except BlockingIOError:
            return
        now = time.monotonic_ns()
        while self._heap and self._heap[0][0] <= now:
            _, _, call, arguments = heapq.heappop(self._heap)
            call(*arguments)
        self._arm()

    def _arm(self) -> None:
        if self._heap:
            seconds, ns = divmod(max(self._heap[0][0], 1), 1_000_000_000)  # 0 would disarm it
            self._libc.timerfd_settime(self._fd, _ABSOLUTE, ctypes.byref(_Instant(0, 0, seconds, ns)), None)
