"""Closed loop: a fixed number of sessions in flight."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Closed:
    """The next session starts when one of `concurrency` ends, so a slow server is asked less often.

    The slots open one after another: slot k (from 0) k / `concurrency` of `ramp_s` seconds after the start.
    """

    concurrency: int
    ramp_s: float

    @property
    def open_loop(self) -> bool:
        """Never: arrivals follow the server."""
        return False

    def wait(self, elapsed_s: float, started: int, finished: int) -> float | None:
        """0 while an open slot is free, else the time until the next one opens; None where all are taken."""
        in_flight = started - finished
        if in_flight >= self.concurrency:
            return None
        return max(0.0, in_flight * self.ramp_s / self.concurrency - elapsed_s)
