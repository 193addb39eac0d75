"""Locks on files by which other processes see that somebody works with them; the system lets go of a dead one's."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path


def hold(fd: int) -> None:
    """Lock an open file until it is closed. Where the file system has no locks, nobody will take it for dead."""
    with contextlib.suppress(OSError):
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


def take_over(path: Path) -> int | None:
    """A descriptor that holds the lock of `path`; None where it may be somebody else's, or there is no file."""
    try:
        fd = os.open(path, os.O_RDWR)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        return None
    return fd


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of `path`, which is made where it is missing; waits for whoever holds it now."""
    with path.open("a") as file:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
