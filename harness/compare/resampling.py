"""Bootstrap intervals of figures that prompts have one by one.

Percentile method (Efron 1979), its ends moved outwards for few values: the plain one is too narrow by the factor
√((n−1)/n) and by that of the normal against Student's t (Hesterberg 2015, section 5.3).
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

_RESAMPLES = 4000
_TAIL = 0.025  # a side


def interval_of_mean(values: Sequence[float] | npt.NDArray[Any]) -> tuple[float, float] | None:
    """95 % interval of the mean over the units that `values` belong to; None for fewer than two."""
    return _interval(values, lambda drawn: drawn.mean(axis=1))


def interval_of_median(values: Sequence[float] | npt.NDArray[Any]) -> tuple[float, float] | None:
    """95 % interval of the median; None for fewer than two."""
    return _interval(values, lambda drawn: np.median(drawn, axis=1))


def _interval(
    values: Sequence[float] | npt.NDArray[Any], statistic: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]
) -> tuple[float, float] | None:
    from scipy.stats import norm, t

    given = np.asarray(values, dtype=float)
    count = len(given)
    if count < 2:
        return None
    picks = np.random.default_rng(0).integers(0, count, (_RESAMPLES, count))
    found = statistic(given[picks])
    tail = float(norm.cdf(t.ppf(_TAIL, count - 1) * np.sqrt(count / (count - 1))))
    return float(np.quantile(found, tail)), float(np.quantile(found, 1 - tail))
