"""Percentiles that are only shown where the sample can carry them.

Linear interpolation between order statistics (numpy's default, Hyndman and Fan type 7). A percentile that
needs
more samples than there are is None: a p99 of 20 values is their maximum under another name.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]

SHOWN = {"p50": 50.0, "p90": 90.0, "p95": 95.0, "p99": 99.0}
# Fewest samples from which a percentile is shown; those not named need one.
FEWEST_SAMPLES = {99.0: 100, 99.9: 3000}
_CONFIDENCE = 0.95
_BEYOND = 3  # values to be expected beyond a percentile before a verdict rests on it
_FEWEST_IN_ANY_CASE = 10


def fewest_for_a_verdict(q: float) -> int:
    """Fewest samples from which a verdict may rest on the q-th percentile: p50 10, p90 30, p95 60, p99 300.

    With 3 / (1 - q) independent values the chance that none lies beyond the percentile is e⁻³ = 5 % (the rule of
    three); with fewer the figure is too often the mere maximum. A median of under 10 rests on single values.
    """
    return max(_FEWEST_IN_ANY_CASE, math.ceil(100 * _BEYOND / (100 - q)))


def percentile(values: Sequence[float] | Values, q: float) -> float | None:
    """The q-th percentile (0 to 100), or None where there are too few values. Missing values are left out."""
    sample = defined(values)
    if len(sample) < FEWEST_SAMPLES.get(q, 1):
        return None
    return float(np.percentile(sample, q))


def percentile_interval(values: Sequence[float] | Values, q: float) -> tuple[float, float] | None:
    """A 95 % interval of the q-th percentile from order statistics (binomial ranks, no assumption of shape).

    None where `percentile` is None, or where the sample is too small for two such ranks to exist.
    """
    sample = np.sort(defined(values))
    n = len(sample)
    if n < FEWEST_SAMPLES.get(q, 1):
        return None
    tail = (1 - _CONFIDENCE) / 2
    # P(lower rank < B ≤ upper rank) ≥ 0.95 for B ~ Binomial(n, q), ranks counted from 1
    lower = _binomial_quantile(tail, n, q / 100)
    upper = _binomial_quantile(1 - tail, n, q / 100) + 1
    if lower < 1 or upper > n:
        return None
    return float(sample[lower - 1]), float(sample[upper - 1])


def _binomial_quantile(share: float, n: int, p: float) -> int:
    """The least k with P(B ≤ k) ≥ share for B ~ Binomial(n, p)."""
    from scipy.special import bdtr, bdtrik  # scipy.stats takes half a second to import

    k = math.ceil(bdtrik(share, n, p))
    return k - 1 if k > 0 and bdtr(k - 1, n, p) >= share else k


def describe(values: Sequence[float] | Values) -> dict[str, Any]:
    """`mean`, the percentiles of SHOWN, `samples`, and the interval of p99; every key is always there."""
    sample = defined(values)
    description: dict[str, Any] = {"mean": float(sample.mean()) if len(sample) else None}
    description.update({name: percentile(sample, q) for name, q in SHOWN.items()})
    interval = percentile_interval(sample, 99.0)
    description["p99_interval"] = list(interval) if interval else None
    description["samples"] = len(sample)
    return description


def defined(values: Sequence[float] | Values) -> Values:
    """The values that exist, as floats: a missing one is NaN."""
    array = np.asarray(values, dtype=float)
    return array[~np.isnan(array)]
