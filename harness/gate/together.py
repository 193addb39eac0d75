"""One look and two as exact tests: how likely an unchanged engine looks so much worse.

Within a look the runs of both sides are exchangeable where nothing changed, whatever the machine did between the
looks: each look has its own Mann-Whitney statistic, and they are added (van Elteren 1960, who weighs each by
1 / (runs + 1)). The gate fails a night only where either look alone was suspicious too. What is counted is that whole
event, so that the error it may make is spent on what it does, and not on nights that it would never have failed.

Runs that tie count as if the candidate's were the better ones: broken by chance, ties could only let it look worse,
so that with ties too p is never too small. Without any it is exact.
"""

from collections.abc import Sequence
from functools import cache
from math import comb

import numpy as np
import numpy.typing as npt

_ROUNDING = 1e-9


_Costs = tuple[Sequence[float], Sequence[float]]  # of baseline and candidate, a value a run; larger is worse


def at_most(p: float, limit: float) -> bool:
    """p ≤ limit, for a p that is a sum: 1 of 20 orders is at most 0.05 whatever its last digit."""
    return p <= limit * (1 + _ROUNDING)


def look_worse_p(look: _Costs) -> float:
    """One-sided Mann-Whitney p of one look: the share of the orders of its runs in which it leans at least so far."""
    return float(_tails(*map(len, look))[_exceeds(*look)])


def least_p(theirs: int, ours: int) -> float:
    """The smallest p that a look of so many runs can have: every run of the candidate is the worse one."""
    return 1 / comb(theirs + ours, ours)


def both_worse_p(first: _Costs, second: _Costs, suspicion: float) -> float:
    """Probability that both looks have a p of at most `suspicion` and together lean at least so far.

    1 where these two are not both suspicious themselves, which the test asks for first. A suspicion of 1 asks for
    nothing: then it is van Elteren's test.
    """
    if not at_most(max(look_worse_p(first), look_worse_p(second)), suspicion):
        return 1.0
    looks = [(len(theirs), len(ours), _exceeds(theirs, ours)) for theirs, ours in (first, second)]
    weights = [1 / (theirs + ours + 1) for theirs, ours, _ in looks]
    orders = [_orders(theirs, ours) for theirs, ours, _ in looks]
    suspicious = [_tails(theirs, ours) <= suspicion * (1 + _ROUNDING) for theirs, ours, _ in looks]
    one, other = (weight * np.arange(len(share)) for weight, share in zip(weights, orders, strict=True))
    least = sum(weight * look[2] for weight, look in zip(weights, looks, strict=True))
    meant = np.logical_and.outer(*suspicious) & (np.add.outer(one, other) >= least - _ROUNDING)
    return min(1.0, float(np.multiply.outer(*orders)[meant].sum()))


def _exceeds(theirs: Sequence[float], ours: Sequence[float]) -> int:
    """In how many pairs of runs the candidate is worse: Mann and Whitney's U, no tie counted."""
    return int(np.greater.outer(np.asarray(ours), np.asarray(theirs)).sum())


@cache
def _tails(theirs: int, ours: int) -> npt.NDArray[np.float64]:
    """Share of the orders that have at least U = 0, 1, …; the first is 1."""
    found = np.cumsum(_orders(theirs, ours)[::-1])[::-1]
    return np.minimum(found / found[0], 1.0)


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
