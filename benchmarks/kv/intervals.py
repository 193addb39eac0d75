"""The intervals that targets are judged by."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import binomtest

_RESAMPLES = 20_000
_COVERAGE = 0.95


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure with its 95 % interval."""

    value: float
    low: float
    high: float


def perplexity_ratio(
    log_probs: Sequence[Sequence[float]], full: Sequence[Sequence[float]], seed: int = 0
) -> Interval:
    """Perplexity over the full cache's on the same windows; both [windows][tokens], natural log-probabilities.

    A paired bootstrap over windows (Efron 1979, percentile method): each window's sum of differences is resampled,
    tokens of one window share their context and are no independent samples. Raises ValueError for unequal shapes.
    """
    if [len(row) for row in log_probs] != [len(row) for row in full]:
        raise ValueError("the windows of the two settings are not the same")
    sums = np.array([np.sum(b) - np.sum(a) for a, b in zip(log_probs, full, strict=True)])
    counts = np.array([len(row) for row in full], dtype=np.float64)
    drawn = np.random.default_rng(seed).integers(len(sums), size=(_RESAMPLES, len(sums)))
    ratios = np.exp(sums[drawn].sum(1) / counts[drawn].sum(1))
    low, high = np.quantile(ratios, [(1 - _COVERAGE) / 2, (1 + _COVERAGE) / 2])
    return Interval(float(np.exp(sums.sum() / counts.sum())), float(low), float(high))


def share(hits: int, of: int) -> Interval:
    """A proportion with its interval (Wilson 1927)."""
    interval = binomtest(hits, of).proportion_ci(_COVERAGE, method="wilson")
    return Interval(hits / of, float(interval.low), float(interval.high))
