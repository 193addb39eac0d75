"""Open loop whose rate goes in steps."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from harness.load.unit_arrivals import UnitArrivals


@dataclass(slots=True)
class Steps:
    """stages: (sessions per second, seconds) in order; the last rate stays for whoever asks beyond them.

    Sessions arrive where the integral of the rate reaches 0, 1, 2 … (seed None), or a Poisson process of rate 1.
    """

    stages: Sequence[tuple[float, float]]
    seed: int | None
    _unit: UnitArrivals = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._unit = UnitArrivals(self.seed)

    @property
    def open_loop(self) -> bool:
        """Always: arrivals ignore the server."""
        return True

    def wait(self, elapsed_s: float, started: int, finished: int) -> float | None:
        """Time left to the instant of session number `started`; infinite where the last rate is 0."""
        return self._instant(self._unit.at(started)) - elapsed_s

    def _instant(self, expected: float) -> float:
        """The inverse of the integrated rate. What falls on a border belongs to the first stage with arrivals."""
        begin = 0.0
        for rate, seconds in self.stages:
            if rate and expected < rate * seconds:
                return begin + expected / rate
            expected -= rate * seconds
            begin += seconds
        last = self.stages[-1][0]
        return begin + max(expected, 0.0) / last if last else math.inf
