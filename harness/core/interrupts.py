"""Ctrl-C at a moment when it would lose something: noted, and acted on when the work in hand is safe."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def held_back() -> Iterator[list[int]]:
    """SIGINT and SIGTERM do nothing inside but appear in the list that is yielded; whoever holds it must look.

    Outside of the main thread, where Python delivers no signal, nothing is changed; nor is a signal that this
    process was started to ignore (as a shell does for what runs in its background).
    """
    arrived: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield arrived
        return

    def note(number: int, frame: FrameType | None) -> None:
        arrived.append(number)

    heeded = [number for number in _SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, note) for number in heeded}
    try:
        yield arrived
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
