"""Open loop that replays instants recorded elsewhere."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Trace:
    """instants: when each session starts, in seconds from the start of the run, ascending."""

    instants: Sequence[float]

    @property
    def open_loop(self) -> bool:
        """Always: arrivals ignore the server."""
        return True

    def wait(self, elapsed_s: float, started: int, finished: int) -> float | None:
        """Time left to the recorded instant of session number `started`."""
        return self.instants[started] - elapsed_s
