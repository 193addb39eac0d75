"""Open loop with gaps of the gamma distribution: a rate, and how bursty it is."""

from dataclasses import dataclass, field

from harness.load.drawn_instants import DrawnInstants


@dataclass(slots=True)
class Gamma:
    """Independent gaps of mean 1 / `rate` seconds and coefficient of variation `cv`, the first before session 0.

    Their shape is 1 / cv² and their scale cv² / rate; cv = 1 is a Poisson process, above it sessions come in
    bursts, below it more evenly. Drawn by Python's `random.gammavariate`.
    """

    rate: float
    cv: float
    seed: int
    _instants: DrawnInstants = field(init=False, repr=False)

    def __post_init__(self) -> None:
        shape = self.cv**-2
        scale = 1 / (shape * self.rate)
        self._instants = DrawnInstants(self.seed, lambda source: source.gammavariate(shape, scale))

    @property
    def open_loop(self) -> bool:
        """Always: arrivals ignore the server."""
        return True

    def wait(self, elapsed_s: float, started: int, finished: int) -> float | None:
        """Time left to the instant drawn for session number `started`."""
        return self._instants.at(started) - elapsed_s
