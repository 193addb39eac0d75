"""How a figure grows with another: straight lines, power laws, linear and quadratic parts, each with 95 % intervals.

Least squares with Student's t (Draper and Smith, Applied Regression Analysis, chapters 1 and 5). Intervals suppose
errors that are independent and, for `power_law` and `linear_and_quadratic`, proportional to the figure, as errors of
times are. A point should be a run: requests of one run share its luck. Functions return None where the points do not
tell: fewer than one more than there are coefficients, or too few different places.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]
_CONFIDENCE = 0.95
_REWEIGHTINGS = 3  # errors are relative to the fitted value, which is not known at first


@dataclass(frozen=True, slots=True)
class Estimate:
    """A coefficient; low and high bound it with 95 % confidence."""

    value: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Of the interval, in the coefficient's unit."""
        return (self.high - self.low) / 2

    def contains(self, value: float) -> bool:
        """Whether the interval does."""
        return self.low <= value <= self.high


@dataclass(frozen=True, slots=True)
class PowerLaw:
    """y = factor · x ** exponent."""

    factor: float
    exponent: Estimate

    def at(self, x: float) -> float:
        """The fitted y."""
        return float(self.factor * x**self.exponent.value)


@dataclass(frozen=True, slots=True)
class LinearQuadratic:
    """y = linear · x + quadratic · x². even: the x from which the quadratic part is the larger one, None where it
    never is."""

    linear: Estimate
    quadratic: Estimate

    @property
    def even(self) -> float | None:
        """linear / quadratic; None unless both are above 0."""
        if self.linear.value <= 0 or self.quadratic.value <= 0:
            return None
        return self.linear.value / self.quadratic.value

    def at(self, x: float) -> float:
        """The fitted y."""
        return self.linear.value * x + self.quadratic.value * x * x


def least_squares(terms: Sequence[Sequence[float]], y: Sequence[float]) -> tuple[Estimate, ...] | None:
    """Coefficients of y = Σ coefficient · term, one for each of `terms` (each as long as y)."""
    matrix, target = np.array(terms, dtype=float).T, np.asarray(y, dtype=float)
    if len(target) <= matrix.shape[1]:
        return None
    size = np.abs(matrix).max(axis=0)  # terms of n and n² differ by orders of magnitude
    if not size.all():
        return None
    scaled = matrix / size
    found, _, rank, _ = np.linalg.lstsq(scaled, target, rcond=1e-9)
    if rank < matrix.shape[1]:
        return None
    free = len(target) - matrix.shape[1]
    variance = float(((target - scaled @ found) ** 2).sum()) / free
    errors = np.sqrt(variance * np.diag(np.linalg.inv(scaled.T @ scaled)))
    from scipy.stats import (
        t as student,
    )  # takes a third of a second, and only runs that were measured need it

    width = float(student.ppf((1 + _CONFIDENCE) / 2, free))
    return tuple(
        Estimate(float(value), float(value - width * error), float(value + width * error))
        for value, error in zip(found / size, errors / size, strict=True)
    )


def line(x: Sequence[float], y: Sequence[float]) -> tuple[Estimate, Estimate] | None:
    """Slope and intercept."""
    found = least_squares([list(x), [1.0] * len(x)], y)
    return None if found is None else (found[0], found[1])


def power_law(x: Sequence[float], y: Sequence[float]) -> PowerLaw | None:
    """A straight line through the logarithms; every value must be above 0."""
    if not _positive(x, y):
        return None
    found = line([float(v) for v in np.log(x)], [float(v) for v in np.log(y)])
    return None if found is None else PowerLaw(float(np.exp(found[1].value)), found[0])


def linear_and_quadratic(x: Sequence[float], y: Sequence[float]) -> LinearQuadratic | None:
    """The two parts of a prefill: what is done for each token, and what for each pair of them."""
    if not _positive(x, y):
        return None
    places, target = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    expected, fitted = target, None
    for _ in range(_REWEIGHTINGS):
        found = least_squares([places / expected, places**2 / expected], target / expected)
        if found is None:
            return None
        fitted = LinearQuadratic(*found)
        expected = np.array([fitted.at(place) for place in places])
        if (expected <= 0).any():
            break
    return fitted


def _positive(x: Sequence[float], y: Sequence[float]) -> bool:
    return len(x) > 0 and min(x) > 0 and min(y) > 0
