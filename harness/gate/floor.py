"""Stored mode: how far a night may be from those before it with nothing changed, learnt from those nights.

A machine's speed drifts over days, so that one night resembles the last. The bound is that of a prediction: the mean
of the history, Student's t, and a variance and a count that the resemblance of neighbouring nights corrects (Bayley
and Hammersley 1946: n values with correlation ρ between neighbours tell as much as n (1 − ρ) / (1 + ρ) independent
ones).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log

import numpy as np
from scipy.stats import t

_MOST_ALIKE = 0.95  # correlation of neighbouring nights beyond which a history says nothing


@dataclass(frozen=True, slots=True)
class Floor:
    """What a history allows: values around `usual`, and worse ones by a factor of up to `factor`.

    nights: how many it was learnt from; effective: as how many independent ones they count.
    """

    usual: float
    factor: float
    nights: int
    effective: float

    @property
    def worsening(self) -> float:
        """The relative change to the worse below which nothing can be said (of times; throughput falls by less)."""
        return self.factor - 1


def floor_of(history: Sequence[float], alpha: float, least_effect: float = 0.0) -> Floor | None:
    """The floor of a figure, one-sided at `alpha`, from its medians of nights in order; None where they say nothing.

    All values are above 0. least_effect: the smallest relative change that matters, below which no floor goes. None
    for fewer than 3 nights, and where the nights resemble their neighbours so much that
    they count as fewer than 2.
    """
    if len(history) < 3:
        return None
    values = np.log(np.asarray(history, dtype=float))
    n = len(values)
    centred = values - values.mean()
    total = float(np.sum(centred**2))
    if total <= n * 1e-24:  # the same every night, such as bytes that only geometry decides
        return Floor(float(exp(values.mean())), 1 / (1 - least_effect), n, n)
    found = float(np.sum(centred[1:] * centred[:-1]) / total)
    alike = min(max(found + (1 + 3 * found) / n, 0.0), _MOST_ALIKE)  # bias of short series: Kendall 1954
    effective = n * (1 - alike) / (1 + alike)
    if effective < 2:
        return None
    # The scatter around the history's own mean is too small by the variance of that mean.
    spread = np.sqrt(total / n / (1 - 1 / effective))
    bound = float(t.ppf(1 - alpha, effective - 1)) * spread * np.sqrt(1 + 1 / effective)
    factor = max(float(exp(min(bound, 50.0))), 1 / (1 - least_effect))
    return Floor(float(exp(values.mean())), factor, n, effective)


def beyond(value: float, floor: Floor, higher_is_better: bool) -> bool:
    """Whether a night's median is worse than the history allows."""
    change = log(value / floor.usual)
    return (-change if higher_is_better else change) > log(floor.factor) + 1e-12
