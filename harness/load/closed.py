"""Closed loop: a fixed number of sessions in flight."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Closed:
    """The next session starts when one of `concurrency` ends, so a slow server is asked less often."""

    concurrency: int

    @property
    def open_loop(self) -> bool:
        """Never: arrivals follow the server."""
        return False

    def wait(self, elapsed_s: float, started: int, finished: int) -> float | None:
        """0 while a slot is free, else None."""
        return 0.0 if started - finished < self.concurrency else None
