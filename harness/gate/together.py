"""Two looks as one test: how likely an unchanged engine looks so much worse in both.

Within a look the runs of both sides are exchangeable where nothing changed, whatever the machine did between the
looks: each look has its own Mann-Whitney statistic, and they are added (van Elteren 1960, who weighs each by
1 / (runs + 1)). The gate fails a night only where either look alone was suspicious too. What is counted is that whole
event, so that the error it may make is spent on what it does, and not on nights that it would never have failed.
"""

from collections.abc import Sequence
from functools import cache

import numpy as np
import numpy.typing as npt

_ROUNDING = 1e-9


def both_worse_p(
    first: tuple[Sequence[float], Sequence[float]],
    second: tuple[Sequence[float], Sequence[float]],
    suspicion: float,
) -> float:
    """Probability that both looks have a one-sided p of at most `suspicion` and together lean at least so far.

    first, second: costs (larger is worse) of baseline and candidate, a value a run. Exact without ties; a tie counts
    half, rounded to the candidate's favour. At most the probability that two looks are suspicious at all.
    """
    looks = [(len(theirs), len(ours), _exceeds(theirs, ours)) for theirs, ours in (first, second)]
    weights = [1 / (theirs + ours + 1) for theirs, ours, _ in looks]
    orders = [_orders(theirs, ours) for theirs, ours, _ in looks]
    suspicious = [np.cumsum(share[::-1])[::-1] <= suspicion for share in orders]
    one, other = (weight * np.arange(len(share)) for weight, share in zip(weights, orders, strict=True))
    least = sum(weight * look[2] for weight, look in zip(weights, looks, strict=True))
    meant = np.logical_and.outer(*suspicious) & (np.add.outer(one, other) >= least - _ROUNDING)
    return float(np.multiply.outer(*orders)[meant].sum())


def _exceeds(theirs: Sequence[float], ours: Sequence[float]) -> int:
    """In how many pairs of runs the candidate is worse: Mann and Whitney's U."""
    ahead = np.subtract.outer(np.asarray(ours), np.asarray(theirs))
    return int((ahead > 0).sum() + (ahead == 0).sum() / 2)


@cache
def _orders(theirs: int, ours: int) -> npt.NDArray[np.float64]:
    """Share of the orders of so many runs that have U = 0, 1, …, by Mann and Whitney's recursion over the largest."""
    if not theirs or not ours:
        return np.ones(1)
    found = np.zeros(theirs * ours + 1)
    last_is_ours = _orders(theirs, ours - 1) * (ours / (theirs + ours))
    last_is_theirs = _orders(theirs - 1, ours) * (theirs / (theirs + ours))
    found[theirs : theirs + len(last_is_ours)] += last_is_ours  # it exceeds every run of the baseline
    found[: len(last_is_theirs)] += last_is_theirs
    return found
