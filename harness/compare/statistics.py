"""Is the difference between two groups of runs real? Ratio of medians, its interval, and a test over runs.

The unit of repetition is the run: requests of one run share its luck (the machine's mood, one start of the engine),
so that a thousand of them are no thousand independent samples.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb, inf
from statistics import median

import numpy as np

FEWEST_RUNS = 5  # a side, below which no verdict is given
_RESAMPLES = 4000
_COVERAGE = 0.95


@dataclass(frozen=True, slots=True)
class Ratio:
    """candidate / baseline of the medians over runs; low and high bound it with 95 % confidence, None for one run."""

    value: float
    low: float | None
    high: float | None


def ratio_of_medians(
    baseline: Sequence[Sequence[float]], candidate: Sequence[Sequence[float]], seed: int = 0
) -> Ratio:
    """Ratio of the medians over runs of each run's median, with a hierarchical bootstrap interval.

    Each argument is a list of runs, each a list of that run's samples (one for a figure that a run has once).
    Runs are drawn with replacement, then samples within each drawn run; percentile method (Efron 1979; for nested
    data Davison and Hinkley 1997, section 3.8). Raises ValueError for an empty side or run.
    """
    if not baseline or not candidate or not all(map(len, (*baseline, *candidate))):
        raise ValueError("both sides need at least one run with at least one sample")
    value = _over(median(map(median, candidate)), median(map(median, baseline)))
    if len(baseline) < 2 or len(candidate) < 2:
        return Ratio(value, None, None)
    draws = np.random.default_rng(seed)
    ratios = _drawn_medians(candidate, draws) / np.maximum(
        _drawn_medians(baseline, draws), np.finfo(float).tiny
    )
    tail = (1 - _COVERAGE) / 2
    return Ratio(value, float(np.quantile(ratios, tail)), float(np.quantile(ratios, 1 - tail)))


def _drawn_medians(runs: Sequence[Sequence[float]], draws: np.random.Generator) -> np.ndarray:
    """Shape (_RESAMPLES,): medians over resampled runs of the medians of their resampled samples."""
    arrays = [np.asarray(run, dtype=float) for run in runs]
    # Each run's median is resampled as often as needed once; drawing runs then only picks among those.
    medians = np.stack(
        [
            np.median(array[draws.integers(0, array.size, (_RESAMPLES, array.size))], axis=1)
            if array.size > 1
            else np.full(_RESAMPLES, array[0])
            for array in arrays
        ]
    )
    picks = draws.integers(0, len(arrays), (len(arrays), _RESAMPLES))
    return np.median(medians[picks, np.arange(_RESAMPLES)], axis=0)


def p_value(baseline: Sequence[float], candidate: Sequence[float]) -> float:
    """Two-sided exact Mann-Whitney U test over runs (Mann and Whitney 1947); normal approximation with ties."""
    from scipy.stats import mannwhitneyu  # takes half a second to import, and few reports compare

    if len({*baseline, *candidate}) == 1:
        return 1.0
    return float(mannwhitneyu(baseline, candidate, alternative="two-sided").pvalue)


def smallest_p(baseline: int, candidate: int) -> float:
    """The least p that the test can give with so many runs a side: all of one above all of the other."""
    return 2 / comb(baseline + candidate, baseline)


@dataclass(frozen=True, slots=True)
class Verdict:
    """word: better, worse, same or inconclusive. why: in words. detectable: the least change the data could show."""

    word: str
    why: str
    ratio: Ratio
    p: float | None
    detectable: float | None


def verdict(
    baseline: Sequence[Sequence[float]],
    candidate: Sequence[Sequence[float]],
    higher_is_better: bool,
    least_effect: float,
    alpha: float,
) -> Verdict:
    """What the runs say of candidate against baseline.

    least_effect: the smallest relative change that matters (0.03 is 3 %). alpha: the chance of a false alarm that
    this metric may have (the budget of a comparison divided by its gating metrics, Bonferroni).
    better, worse: the test rejects at `alpha`, the interval excludes 1 and the change matters. same: the whole
    interval lies within the least effect. Everything else is inconclusive, and so is everything below 5 runs a side.
    """
    ratio = ratio_of_medians(baseline, candidate)
    detectable = None
    if ratio.low is not None and ratio.high is not None:
        detectable = (
            max(ratio.high - ratio.value, ratio.value - ratio.low) / ratio.value if ratio.value else inf
        )
    fewest = min(len(baseline), len(candidate))
    if fewest < FEWEST_RUNS:
        why = f"{fewest} {'run' if fewest == 1 else 'runs'} a side; a verdict takes {FEWEST_RUNS}"
        return Verdict("inconclusive", why, ratio, None, detectable)
    p = p_value([median(run) for run in baseline], [median(run) for run in candidate])
    if smallest_p(len(baseline), len(candidate)) > alpha:
        why = f"so few runs cannot show a difference at a false alarm rate of {alpha:g}"
        return Verdict("inconclusive", why, ratio, p, detectable)
    low, high = ratio.low or 0.0, ratio.high or inf
    if 1 - least_effect <= low and high <= 1 + least_effect:
        return Verdict("same", f"the whole interval is within {least_effect:.0%}", ratio, p, detectable)
    apart = p <= alpha and not low <= 1 <= high
    if apart and abs(ratio.value - 1) >= least_effect:
        better = (ratio.value > 1) is higher_is_better
        return Verdict("better" if better else "worse", f"p = {p:.2g}", ratio, p, detectable)
    why = "the difference is smaller than matters" if apart else "the runs overlap"
    return Verdict("inconclusive", why, ratio, p, detectable)


def _over(numerator: float, denominator: float) -> float:
    return numerator / denominator if denominator else inf
