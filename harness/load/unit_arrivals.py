"""Arrivals of rate 1, which a changing rate then stretches: how ramps and steps get their instants."""

from dataclasses import dataclass, field

from harness.load.drawn_instants import DrawnInstants, exponential_gap


@dataclass(slots=True)
class UnitArrivals:
    """Session n is due when n sessions were expected (even), or as a Poisson process of rate 1 draws it.

    A process with rate λ(t) has its arrivals where the integral of λ reaches those of a process with rate 1
    (time rescaling). seed: None for even arrivals.
    """

    seed: int | None
    _drawn: DrawnInstants = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._drawn = DrawnInstants(self.seed, exponential_gap)

    def at(self, number: int) -> float:
        """The instant of session `number` (from 0), in expected sessions."""
        return float(number) if self.seed is None else self._drawn.at(number)
