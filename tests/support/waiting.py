"""Waiting in tests for something to become true; the limit only keeps a broken test from hanging."""

import time
from collections.abc import Callable

import psutil


def wait_until(true: Callable[[], bool], what: str, limit_s: float = 60) -> None:
    """Return once `true()` holds; fail with `what` if it never does."""
    deadline = time.monotonic() + limit_s
    while not true():
        if time.monotonic() > deadline:
            raise AssertionError(f"never happened: {what}")
        time.sleep(0.02)


def gone(pid: int) -> bool:
    """Whether no process with this id runs; a zombie does not run."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True
