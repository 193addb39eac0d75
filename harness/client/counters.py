"""Progress counters in memory that two processes share.

They live in an anonymous memory file that is passed on as a descriptor: no name to collide with, nothing left
behind however the processes end, and no disk whose write-back could make a store wait.
"""

import mmap
import os

STATES = ("starting", "running", "draining", "done")
STATE, STARTED_NS, SENT, FINISHED, ERRORS, IN_FLIGHT, CHUNKS, READY, START_AT_NS, WAITING = range(10)
_BYTES = 4096


def create_counters() -> int:
    """A descriptor of zeroed counters, closed on exec unless it is passed on."""
    fd = os.memfd_create("progress")
    os.ftruncate(fd, _BYTES)
    return fd


class Counters:
    """The counters behind a descriptor, unsigned 64-bit numbers. The measuring process writes `values`; START_AT_NS
    alone is written by the harness, where several workers start together."""

    def __init__(self, fd: int) -> None:
        self._memory = mmap.mmap(fd, _BYTES)
        self.values: memoryview = memoryview(self._memory).cast("Q")

    def close(self) -> None:
        """Unmap; the descriptor stays with whoever opened it."""
        self.values.release()
        self._memory.close()
