"""Open loop with gaps of the gamma distribution: a rate, and how bursty it is."""

import random
from dataclasses import dataclass, field


@dataclass(slots=True)
class Gamma:
    """Independent gaps of mean 1 / `rate` seconds and coefficient of variation `cv`, the first before session 0.

    Their shape is 1 / cv² and their scale cv² / rate; cv = 1 is a Poisson process, above it sessions come in
    bursts, below it more evenly. Drawn from the seed alone by Python's `random.gammavariate`, as far as asked
    for, and remembered.
    """

    rate: float
    cv: float
    seed: int
    _instants: list[float] = field(default_factory=list, repr=False)
    _random: random.Random = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    @property
    def open_loop(self) -> bool:
        """Always: arrivals ignore the server."""
        return True

    def wait(self, elapsed_s: float, started: int, finished: int) -> float | None:
        """Time left to the instant drawn for session number `started`."""
        shape = self.cv**-2
        while len(self._instants) <= started:
            last = self._instants[-1] if self._instants else 0.0
            self._instants.append(last + self._random.gammavariate(shape, 1 / (shape * self.rate)))
        return self._instants[started] - elapsed_s
