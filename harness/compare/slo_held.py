"""Whether a group of runs keeps an SLO, from its own requests: also one that the runs were not made with."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from statistics import median
from typing import Any

from harness.metrics.percentiles import fewest_for_a_verdict
from harness.metrics.slo import (
    PERCENTILE_LIMITS,
    SloOptions,
    judge_percentiles,
    limits_of,
    meets,
    percentile_limits_of,
)
from harness.metrics.window import Window
from harness.records.reader import Run

SHARE = "attainment"  # the key of the share of requests that keep every limit of a single request


@dataclass(frozen=True, slots=True)
class Held:
    """One limit and what a group's runs have: milliseconds, or a share of requests where the key is SHARE.

    value: the median over runs; None where so many requests failed that the percentile is one of them.
    runs_met: of `runs`, how many keep the limit by themselves. needed: samples that a verdict takes; samples: of the
    run that has the fewest.
    """

    key: str
    limit: float
    value: float | None
    runs_met: int
    runs: int
    samples: int
    needed: int

    @property
    def met(self) -> bool:
        """Whether the median run keeps it."""
        value = self.value
        if self.key == SHARE:
            return value is not None and value >= self.limit
        return value is not None and value <= self.limit

    @property
    def sure(self) -> bool:
        """Whether all runs say the same, each of samples enough."""
        return self.runs_met in (0, self.runs) and self.samples >= self.needed

    @property
    def beyond(self) -> float | None:
        """How far the limit is missed: a share of it, or of all requests. None where it is met, or nobody knows."""
        if self.met or self.value is None:
            return None
        return self.limit - self.value if self.key == SHARE else self.value / self.limit - 1


def held(runs: Sequence[Run], slo: SloOptions | None, attainment: float) -> tuple[Held, ...]:
    """Each limit of the SLO, over these runs. attainment: the share of a run's requests that must keep the limits of
    single requests. () where there is no run with a window (of none a request was scheduled) or no limit.
    """
    runs = [run for run in runs if run.window]
    if slo is None or not runs or not (limits_of(slo) or percentile_limits_of(slo)):
        return ()
    scheduled = [Window.from_record(run.window).requests(run.requests) for run in runs]
    judged = [judge_percentiles(rows, slo) for rows in scheduled]
    found = [
        _percentile(key, [limits[place] for limits in judged])
        for place, key in enumerate(percentile_limits_of(slo))
    ]
    if limits_of(slo):
        shares = [float(meets(rows, slo).mean()) if len(rows) else 0.0 for rows in scheduled]
        met = sum(share >= attainment for share in shares)
        needed = fewest_for_a_verdict(100 * attainment) if attainment < 1 else 1
        fewest = min(map(len, scheduled))
        found.append(Held(SHARE, attainment, median(shares), met, len(runs), fewest, needed))
    return tuple(found)


def _percentile(key: str, limits: Sequence[dict[str, Any]]) -> Held:
    """limits: of each run, what `judge_percentiles` says of this key."""
    # No value: answers of one token have no TPOT and cannot miss; else the percentile is a failed request.
    values = [
        found["value_ms"] if found["value_ms"] is not None else 0.0 if found["met"] else inf
        for found in limits
    ]
    middle = median(values)
    return Held(
        key,
        limits[0]["limit_ms"],
        None if middle == inf else middle,
        sum(found["met"] for found in limits),
        len(limits),
        min(found["samples"] for found in limits),
        fewest_for_a_verdict(PERCENTILE_LIMITS[key][1]),
    )
