"""Open loop whose rate goes linearly from one value to another."""

import math
from dataclasses import dataclass, field

from harness.load.unit_arrivals import UnitArrivals


@dataclass(slots=True)
class Ramp:
    """λ(t) = rate + (rate_end − rate) · t / ramp_s up to `ramp_s`, then rate_end.

    Sessions arrive where the integral of λ reaches 0, 1, 2 … (seed None), or a Poisson process of rate 1.
    """

    rate: float
    rate_end: float
    ramp_s: float
    seed: int | None
    _unit: UnitArrivals = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._unit = UnitArrivals(self.seed)

    @property
    def open_loop(self) -> bool:
        """Always: arrivals ignore the server."""
        return True

    def wait(self, elapsed_s: float, started: int, finished: int) -> float | None:
        """Time left to the instant of session number `started`; infinite where the rate has ended at 0."""
        return self._instant(self._unit.at(started)) - elapsed_s

    def _instant(self, expected: float) -> float:
        """The inverse of ∫λ: rate · t + slope · t² / 2 = expected on the ramp, linear behind it."""
        whole = (self.rate + self.rate_end) / 2 * self.ramp_s
        if expected > whole:
            return self.ramp_s + (expected - whole) / self.rate_end if self.rate_end else math.inf
        slope = (self.rate_end - self.rate) / self.ramp_s
        # the root written so that nothing cancels where the slope is small
        root = math.sqrt(max(0.0, self.rate**2 + 2 * slope * expected))
        return 2 * expected / (self.rate + root) if expected else 0.0
