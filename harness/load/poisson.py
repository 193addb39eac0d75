"""Open loop with independent, exponentially distributed gaps: a Poisson process."""

from dataclasses import dataclass, field

from harness.load.drawn_instants import DrawnInstants, exponential_gap


@dataclass(slots=True)
class Poisson:
    """Users who do not know of each other: gaps of mean 1 / `rate` seconds, the first one before session 0.

    Two runs of one seed offer the same load.
    """

    rate: float
    seed: int
    _instants: DrawnInstants = field(init=False, repr=False)

    def __post_init__(self) -> None:
        rate = self.rate
        self._instants = DrawnInstants(self.seed, lambda source: exponential_gap(source) / rate)

    @property
    def open_loop(self) -> bool:
        """Always: arrivals ignore the server."""
        return True

    def wait(self, elapsed_s: float, started: int, finished: int) -> float | None:
        """Time left to the instant drawn for session number `started`."""
        return self._instants.at(started) - elapsed_s
