"""Open loop with independent, exponentially distributed gaps: a Poisson process."""

import math
import random
from dataclasses import dataclass, field


@dataclass(slots=True)
class Poisson:
    """Users who do not know of each other: gaps of mean 1 / `rate` seconds, the first one before session 0.

    The instants depend on the seed alone (inverse transform of Python's Mersenne Twister, whose stream is the
    same in every version), so two runs of one seed offer the same load. They are drawn as far as they are
    asked for and remembered; that is the only state.
    """

    rate: float
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
        while len(self._instants) <= started:
            last = self._instants[-1] if self._instants else 0.0
            self._instants.append(last - math.log(1.0 - self._random.random()) / self.rate)
        return self._instants[started] - elapsed_s
