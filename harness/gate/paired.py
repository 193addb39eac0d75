"""Paired mode: two versions measured in turns in one night, so that what the machine does falls on both.

A figure regresses in two steps. A first look that leans to the worse (one-sided Mann-Whitney below `suspicion`, and a
change that matters) asks for a second of the same size. The night fails only if the second leans the same way and
both together reject at the figure's share of the night's false alarms (`together.both_worse_p`, which counts both
conditions; that the change must matter can only lower the share).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import exp, log, sqrt
from statistics import NormalDist, median

from scipy.stats import mannwhitneyu

from harness.gate.together import both_worse_p

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

    def __add__(self, other: "Series") -> "Series":
        both = (self.baseline + other.baseline, self.candidate + other.candidate)
        return Series(*both, self.higher_is_better)


@dataclass(frozen=True, slots=True)
class Limits:
    """alpha: the figure's share of the night's false alarms; the rest as in GateOptions."""

    alpha: float
    suspicion: float
    least_effect: float


def worsening(series: Series) -> float:
    """Relative change of the median to the worse: 0.1 for 10 % more time, or 10 % less throughput."""
    ratio = median(series.candidate) / median(series.baseline)
    return 1 - ratio if series.higher_is_better else ratio - 1


def worse_p(series: Series) -> float:
    """One-sided Mann-Whitney test over runs that the candidate is worse; exact for up to 8 a side without ties."""
    if len({*series.baseline, *series.candidate}) == 1:
        return 1.0
    side = "less" if series.higher_is_better else "greater"
    return float(mannwhitneyu(series.candidate, series.baseline, alternative=side).pvalue)


def leans(series: Series, limits: Limits) -> bool:
    """Whether one look leans to the worse by so much that it would matter."""
    return worsening(series) >= limits.least_effect and worse_p(series) <= limits.suspicion


def regressed(first: Series, second: Series, limits: Limits) -> bool:
    """Whether two looks together say that the candidate is worse."""
    if not leans(first, limits) or worse_p(second) > limits.suspicion:
        return False
    return (
        together_p(first, second, limits) <= limits.alpha and worsening(first + second) >= limits.least_effect
    )


def together_p(first: Series, second: Series, limits: Limits) -> float:
    """Probability that an unchanged engine looks so much worse in both looks."""
    return both_worse_p(_costs(first), _costs(second), limits.suspicion)


def _costs(series: Series) -> tuple[list[float], list[float]]:
    sign = -1 if series.higher_is_better else 1
    return [sign * value for value in series.baseline], [sign * value for value in series.candidate]


def noise(series: Series) -> float:
    """Standard deviation of log(value) between runs of one side, robust: one run of five may be anywhere.

    The median of all differences within a side (the idea of Rousseeuw and Croux 1993), scaled for normal noise; of
    two sides the root mean square, since the noise of either hides a change though the other be quiet. With 5 runs a
    side it is a tenth too large on average, which errs to the cautious side.
    """
    sides = [
        [abs(log(a) - log(b)) for a, b in combinations(side, 2)]
        for side in (series.baseline, series.candidate)
    ]
    if not all(sides):
        return float("inf")
    return sqrt(sum(median(gaps) ** 2 for gaps in sides) / 2) / _PAIRWISE_MEDIAN


def visible(series: Series, repeats: int, limits: Limits) -> float:
    """The least relative worsening that two looks of `repeats` runs a side find four times in five at this noise."""
    power = NormalDist().inv_cdf(
        _POWER ** (1 / 3)
    )  # three conditions must hold: first look, second, and both
    spread = noise(series)
    pooled = (NormalDist().inv_cdf(1 - limits.alpha) + power) * sqrt(2 / (2 * repeats))
    alone = (NormalDist().inv_cdf(1 - limits.suspicion) + power) * sqrt(2 / repeats)
    return max(exp(max(pooled, alone) * spread / sqrt(_EFFICIENCY)) - 1, limits.least_effect)


def positive(values: Sequence[float]) -> bool:
    """Whether a figure can be judged at all: ratios and logarithms need values above 0."""
    return bool(values) and min(values) > 0
