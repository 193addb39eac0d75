"""Calls at exact instants of CLOCK_MONOTONIC.

uvloop's own timers count whole milliseconds, which an arrival process would show as schedule lag. A timerfd
wakes the loop within tens of microseconds.
"""

import asyncio
import heapq
import itertools
import time
from collections.abc import Callable
from typing import Any

from harness.client.timerfd import TimerFd


class Timeline:
    """A heap of calls and one timerfd set to the earliest of them."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = TimerFd()
        self._heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = itertools.count()
        self._loop = loop
        loop.add_reader(self._timer.fd, self._ring)

    def call_at(self, ns: int, call: Callable[..., None], *arguments: Any) -> None:
        """Call `call(*arguments)` at `ns`, or at once if that is past. Equal instants keep their order."""
        heapq.heappush(self._heap, (ns, next(self._order), call, arguments))
        if self._heap[0][0] == ns:
            self._arm()

    def close(self) -> None:
        """Forget all calls."""
        self._loop.remove_reader(self._timer.fd)
        self._timer.close()

    def _ring(self) -> None:
        if not self._timer.rang():
            return
        now = time.monotonic_ns()
        while self._heap and self._heap[0][0] <= now:
            _, _, call, arguments = heapq.heappop(self._heap)
            call(*arguments)
        self._arm()

    def _arm(self) -> None:
        if self._heap:
            self._timer.ring_at(self._heap[0][0])
