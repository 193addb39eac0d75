"""Paired mode: two versions measured in turns in one night, so that what the machine does falls on both.

A figure regresses in two steps. A first look that leans to the worse (one-sided Mann-Whitney at `suspicion`, and a
change that matters) asks for a second of the same size. The night fails only if the second is suspicious too, the
change over both matters, and both together reject at the figure's share of the night's false alarms
(`together.both_worse_p`, which counts both suspicions; that the change must matter can only lower the share).

The machine may be at another level in the second look. So nothing is pooled over looks: changes, noise and p are each
look's own, and then put together.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import exp, log, prod, sqrt
from statistics import NormalDist, median

from harness.gate.together import at_most, both_worse_p, least_p, look_worse_p

_POWER = 0.8  # with which a change counts as one that could have been shown
# Asymptotic efficiency of the Mann-Whitney test beside a t-test under normal noise (Hodges and Lehmann 1956): 3/π.
_EFFICIENCY = 0.955
_PAIRWISE_MEDIAN = 0.954  # of |x − y| for two normal values of standard deviation 1


@dataclass(frozen=True, slots=True)
class Series:
    """One figure of one look: a value per run, a side each; all above 0."""

    baseline: tuple[float, ...]
    candidate: tuple[float, ...]
    higher_is_better: bool

    @property
    def runs(self) -> tuple[int, int]:
        """How many, of baseline and candidate."""
        return len(self.baseline), len(self.candidate)


@dataclass(frozen=True, slots=True)
class Limits:
    """alpha: the figure's share of the night's false alarms; the rest as in GateOptions."""

    alpha: float
    suspicion: float
    least_effect: float


def level(sides: Sequence[Sequence[float]]) -> float:
    """One side's figure over looks: the geometric mean of each one's median."""
    return prod(map(median, sides)) ** (1 / len(sides))


def worsening(looks: Sequence[Series]) -> float:
    """Relative change to the worse: 0.1 for 10 % more time, or 10 % less throughput. Of the medians of each look."""
    ratio = level([one.candidate for one in looks]) / level([one.baseline for one in looks])
    return 1 - ratio if looks[0].higher_is_better else ratio - 1


def worse_p(looks: Sequence[Series], limits: Limits) -> float:
    """How likely one look or two would look so much worse with nothing changed.

    Of two that both are suspicious, which a night asks for before it fails, it is what the night is judged by.
    """
    costs = [_costs(one) for one in looks]
    if len(costs) == 1:
        return look_worse_p(costs[0])
    first, second = costs
    return both_worse_p(first, second, limits.suspicion if _both_suspicious(looks, limits) else 1.0)


def leans(look: Series, limits: Limits) -> bool:
    """Whether one look leans to the worse by so much that it would matter."""
    return worsening([look]) >= limits.least_effect and _suspicious(look, limits)


def leans_twice(looks: Sequence[Series], limits: Limits) -> bool:
    """Whether the second look bears the first one out: suspicious too, with a change over both that matters."""
    return (
        len(looks) > 1
        and leans(looks[0], limits)
        and _both_suspicious(looks, limits)
        and worsening(looks) >= limits.least_effect
    )


def regressed(looks: Sequence[Series], limits: Limits) -> bool:
    """Whether two looks together say that the candidate is worse; False for one."""
    return leans_twice(looks, limits) and at_most(worse_p(looks, limits), limits.alpha)


def too_few(looks: Sequence[Series], limits: Limits) -> bool:
    """Whether these looks could not fail a night whatever their runs were; a single one with another of its size.

    What could never fail cannot pass either. Below 2 runs a side nothing is known of the noise.
    """
    both = [*looks, looks[0]][:2]
    least = [least_p(*one.runs) for one in both]
    alarming = at_most(max(least), limits.suspicion) and at_most(prod(least), limits.alpha)
    return not alarming or min(min(one.runs) for one in both) < 2


def _suspicious(look: Series, limits: Limits) -> bool:
    return at_most(look_worse_p(_costs(look)), limits.suspicion)


def _both_suspicious(looks: Sequence[Series], limits: Limits) -> bool:
    return all(_suspicious(one, limits) for one in looks)


def _costs(series: Series) -> tuple[list[float], list[float]]:
    sign = -1 if series.higher_is_better else 1
    return [sign * value for value in series.baseline], [sign * value for value in series.candidate]


def noise(looks: Sequence[Series]) -> float:
    """Standard deviation of log(value) between runs of one side of one look, robust: one of five may be anywhere.

    The median of all differences within a side (the idea of Rousseeuw and Croux 1993), scaled for normal noise; over
    sides and looks the root mean square, since the noise of either hides a change though the other be quiet. With 5
    runs a side it is a tenth too large on average, which errs to the cautious side. Each side has at least 2 runs.
    """
    sides = [
        [abs(log(a) - log(b)) for a, b in combinations(side, 2)]
        for look in looks
        for side in (look.baseline, look.candidate)
    ]
    return sqrt(sum(median(gaps) ** 2 for gaps in sides) / len(sides)) / _PAIRWISE_MEDIAN


def visible(looks: Sequence[Series], repeats: int, limits: Limits) -> float:
    """The least relative worsening that two looks of `repeats` runs a side find four times in five at their noise."""
    power = NormalDist().inv_cdf(
        _POWER ** (1 / 3)
    )  # three conditions must hold: first look, second, and both
    spread = noise(looks)
    pooled = (NormalDist().inv_cdf(1 - limits.alpha) + power) * sqrt(2 / (2 * repeats))
    alone = (NormalDist().inv_cdf(1 - limits.suspicion) + power) * sqrt(2 / repeats)
    return max(exp(max(pooled, alone) * spread / sqrt(_EFFICIENCY)) - 1, limits.least_effect)


def positive(values: Sequence[float]) -> bool:
    """Whether a figure can be judged at all: ratios and logarithms need values above 0."""
    return bool(values) and min(values) > 0
