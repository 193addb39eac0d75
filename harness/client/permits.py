"""The bound on requests in flight, of one worker or of all of them together."""

import asyncio
import contextlib
import fcntl
import os
from collections.abc import Callable
from typing import Protocol

_F_SETPIPE_SZ = 1031  # linux/fcntl.h
_PAGE = os.sysconf("SC_PAGE_SIZE")
_SPARE_PAGES = (
    2  # the first is read in part, the last written in part, and neither is used again until it is empty
)
MOST_SHARED = (1 << 20) - _SPARE_PAGES * _PAGE  # an unprivileged process may have a pipe of 1 MiB


class Permits(Protocol):
    """Each request in flight holds one."""

    def take(self) -> bool:
        """Take one; False if there is none left."""

    def give(self) -> None:
        """Give one back."""

    def call_when_free(self, call: Callable[[], None] | None) -> None:
        """Have `call` called whenever one may be free that another worker gave back; None for no more."""


class OwnPermits:
    """Counted in this process. limit: None for as many as one likes."""

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._taken = 0

    def take(self) -> bool:
        """See `Permits`."""
        if self._limit is not None and self._taken >= self._limit:
            return False
        self._taken += 1
        return True

    def give(self) -> None:
        """See `Permits`."""
        self._taken -= 1

    def call_when_free(self, call: Callable[[], None] | None) -> None:
        """See `Permits`. There is no other worker."""


class SharedPermits:
    """Bytes in a pipe that all workers hold: who reads one has a permit, who writes it back gives it."""

    def __init__(self, ends: tuple[int, int]) -> None:
        self._reader, self._writer = ends
        self._watched = False

    @staticmethod
    def create(limit: int) -> tuple[int, int]:
        """A pipe with `limit` permits in it (read end, write end), never blocking. At most MOST_SHARED."""
        reader, writer = os.pipe()
        fcntl.fcntl(writer, _F_SETPIPE_SZ, (limit // _PAGE + _SPARE_PAGES) * _PAGE)
        for end in (reader, writer):
            os.set_blocking(end, False)
        os.write(writer, b"." * limit)
        return reader, writer

    def take(self) -> bool:
        """See `Permits`."""
        try:
            return os.read(self._reader, 1) == b"."
        except BlockingIOError:
            return False

    def give(self) -> None:
        """See `Permits`."""
        os.write(self._writer, b".")

    def call_when_free(self, call: Callable[[], None] | None) -> None:
        """See `Permits`."""
        loop = asyncio.get_running_loop()
        if call is not None and not self._watched:
            loop.add_reader(self._reader, call)
        elif call is None and self._watched:
            with contextlib.suppress(OSError):
                loop.remove_reader(self._reader)
        self._watched = call is not None
