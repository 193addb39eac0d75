"""Open loop at a constant rate."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Constant:
    """Session n starts n / `rate` seconds after the run began; `rate` is in sessions per second."""

    rate: float

    @property
    def open_loop(self) -> bool:
        """Always: arrivals ignore the server."""
        return True

    def wait(self, elapsed_s: float, started: int, finished: int) -> float | None:
        """Time left to n / rate. Computed from n each time, so no rounding error accumulates."""
        return started / self.rate - elapsed_s
