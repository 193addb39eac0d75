"""Instants drawn one after another from a seed: what every random arrival process rests on."""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True)
class DrawnInstants:
    """Sums of independent gaps, the first one before instant 0.

    They depend on the seed alone (Python's Mersenne Twister, whose stream is the same in every version), are drawn
    as far as they are asked for, and remembered; that is the only state. gap: draws one gap, 0 or more.
    """

    seed: int | None
    gap: Callable[[random.Random], float]
    _instants: list[float] = field(default_factory=list, init=False, repr=False)
    _random: random.Random = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def at(self, number: int) -> float:
        """Instant `number` (from 0), in the unit of the gaps."""
        while len(self._instants) <= number:
            last = self._instants[-1] if self._instants else 0.0
            self._instants.append(last + self.gap(self._random))
        return self._instants[number]


def exponential_gap(source: random.Random) -> float:
    """A gap of mean 1 between independent arrivals, by the inverse transform."""
    return -math.log(1.0 - source.random())
