"""Arrivals of rate 1, which a changing rate then stretches: how ramps and steps get their instants."""

import math
import random
from dataclasses import dataclass, field


@dataclass(slots=True)
class UnitArrivals:
    """Session n is due when n sessions were expected (even), or as a Poisson process of rate 1 draws it.

    A process with rate λ(t) has its arrivals where the integral of λ reaches those of a process with rate 1
    (time rescaling). seed: None for even arrivals. Draws are remembered.
    """

    seed: int | None
    _drawn: list[float] = field(default_factory=list, repr=False)
    _random: random.Random = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def at(self, number: int) -> float:
        """The instant of session `number` (from 0), in expected sessions."""
        if self.seed is None:
            return float(number)
        while len(self._drawn) <= number:
            last = self._drawn[-1] if self._drawn else 0.0
            self._drawn.append(last - math.log(1.0 - self._random.random()))
        return self._drawn[number]
