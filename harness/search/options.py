"""What the user can say about a search and a sweep; values come from conf/load/search.yaml and sweep_rate.yaml."""

from dataclasses import dataclass, fields
from typing import Any

from omegaconf import MISSING

from harness.load.options import ClosedOptions, ConstantOptions, LoadOptions, PoissonOptions
from harness.search.bracket import Rules

_OPEN: dict[str, type[LoadOptions]] = {"constant": ConstantOptions, "poisson": PoissonOptions}
ARRIVALS = tuple(_OPEN)


@dataclass
class ProbeOptions(LoadOptions):
    """What all probes share.

    duration_s, requests and the timeouts bound each probe. arrivals: poisson or constant.
    attainment: share of requests that must keep the SLO's limits of single requests.
    most_in_flight: a probe with more requests in flight than this, those that load.concurrency holds back counted
        in, is over-saturated, and ended.
    """

    arrivals: str = MISSING
    attainment: float = MISSING
    most_in_flight: int = MISSING

    @property
    def unit(self) -> str:
        """What a value counts."""
        return "sessions/s"

    @property
    def highest(self) -> float | None:
        """The highest value that any probe can have, None where that is not known."""
        raise NotImplementedError(f"load={self.name} has no order of values")

    def probe(self, value: float) -> LoadOptions:
        """The load of one probe at this rate."""
        return _OPEN[self.arrivals](**{**self._shared(), "name": self.arrivals, "rate": float(value)})

    def sessions(self, value: float) -> float | None:
        """How many sessions a probe at `value` takes, None where only the workload says."""
        return None if self.duration_s is None else value * self.duration_s

    def _shared(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(LoadOptions)}


@dataclass
class SweepRateOptions(ProbeOptions):
    """A list of rates. rates: sessions per second, in the order they are run."""

    rates: list[float] = MISSING

    @property
    def highest(self) -> float | None:
        """The highest of the list."""
        return max(self.rates)


@dataclass
class SearchOptions(ProbeOptions):
    """The highest load that meets the SLO.

    over: rate (sessions per second) or concurrency (sessions in flight).
    first: where the search begins. most: it looks no higher; null for no bound.
    tolerance: it ends when the lowest miss is at most this much above the highest value that met, relative.
    probes: at most so many, the repeat included.
    rounds: over concurrency, sessions for each slot of a probe.
    """

    over: str = MISSING
    first: float = MISSING
    most: float | None = MISSING
    tolerance: float = MISSING
    probes: int = MISSING
    rounds: int = MISSING

    @property
    def unit(self) -> str:
        """What a value counts."""
        return "sessions/s" if self.over == "rate" else "sessions in flight"

    @property
    def highest(self) -> float | None:
        """Its bound from above, where it has one."""
        return self.most

    def probe(self, value: float) -> LoadOptions:
        """The load of one probe at this rate or concurrency."""
        if self.over == "rate":
            return super().probe(value)
        shared = {**self._shared(), "name": "closed", "concurrency": int(value)}
        return ClosedOptions(**shared, ramp_s=0.0)

    def sessions(self, value: float) -> float | None:
        """By time over a rate, by rounds over a concurrency."""
        return super().sessions(value) if self.over == "rate" else value * self.rounds

    def rules(self) -> Rules:
        """The options as the bracketing takes them; a rate at which not one session is expected shows nothing."""
        whole = self.over == "concurrency"
        least = 0.0 if whole or self.duration_s is None else 1 / self.duration_s
        return Rules(self.first, self.most, self.tolerance, self.probes, whole, least)
