import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.metrics.scaling import least_squares, line, linear_and_quadratic, power_law

LENGTHS = [256.0, 512.0, 1024.0, 2048.0, 4096.0, 8064.0]


@settings(deadline=None)
@given(st.floats(1e-6, 1e6), st.floats(-3, 3))
def test_a_power_law_without_noise_is_found(factor: float, exponent: float) -> None:
    found = power_law(LENGTHS, [factor * length**exponent for length in LENGTHS])
    assert found is not None
    assert found.exponent.value == pytest.approx(exponent, abs=1e-9)
    assert found.exponent.half_width < 1e-9
    assert found.at(1000.0) == pytest.approx(factor * 1000.0**exponent, rel=1e-8)


@settings(deadline=None)
@given(st.floats(1e-4, 10), st.floats(1e-9, 1e-3))
def test_both_parts_of_a_prefill_without_noise_are_found(linear: float, quadratic: float) -> None:
    found = linear_and_quadratic(LENGTHS, [linear * n + quadratic * n * n for n in LENGTHS])
    assert found is not None
    assert found.linear.value == pytest.approx(linear, rel=1e-5)
    assert found.quadratic.value == pytest.approx(quadratic, rel=1e-5)
    assert found.even == pytest.approx(linear / quadratic, rel=1e-4)
    assert found.at(found.even) == pytest.approx(2 * linear * found.even, rel=1e-4)


def test_a_line_and_its_interval_are_those_of_the_textbook() -> None:
    # x and y of Anscombe's first quartet: slope 0.5001, intercept 3.0001, standard errors 0.1179 and 1.1247;
    # t(0.975, 9) is 2.26216.
    x = [10, 8, 13, 9, 11, 14, 6, 4, 12, 7, 5]
    y = [8.04, 6.95, 7.58, 8.81, 8.33, 9.96, 7.24, 4.26, 10.84, 4.82, 5.68]
    found = line(x, y)
    assert found is not None
    slope, intercept = found
    assert slope.value == pytest.approx(0.5001, abs=1e-4)
    assert intercept.value == pytest.approx(3.0001, abs=1e-4)
    assert slope.half_width == pytest.approx(2.26216 * 0.1179, rel=1e-3)
    assert intercept.half_width == pytest.approx(2.26216 * 1.1247, rel=1e-3)


def test_what_the_points_do_not_tell_is_none() -> None:
    assert line([1, 2], [3, 4]) is None  # no point left to judge the fit by
    assert line([5, 5, 5], [1, 2, 3]) is None
    assert power_law([1, 2, 3], [0, 1, 2]) is None
    assert power_law([], []) is None
    assert linear_and_quadratic([7, 7, 7, 7], [1, 2, 3, 4]) is None
    assert least_squares([[0, 0, 0], [1, 2, 3]], [1, 2, 3]) is None


def test_a_quadratic_part_that_is_not_there_is_never_the_larger() -> None:
    found = linear_and_quadratic(LENGTHS, [3 * n - 1e-5 * n * n for n in LENGTHS])
    assert found is not None
    assert found.even is None


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    """1000 experiments with 5 % of noise; four standard errors around 95 %."""
    random = np.random.default_rng(1)
    held = {"exponent": 0, "linear": 0, "quadratic": 0}
    lengths = LENGTHS * 2
    exact = np.array([0.5 * n + 1e-4 * n * n for n in lengths])
    for _ in range(1000):
        noise = random.normal(0, 0.05, len(lengths))
        law = power_law(lengths, list(2.0 * np.array(lengths) ** 1.3 * np.exp(noise)))
        parts = linear_and_quadratic(lengths, list(exact * (1 + noise)))
        assert law is not None
        assert parts is not None
        held["exponent"] += law.exponent.contains(1.3)
        held["linear"] += parts.linear.contains(0.5)
        held["quadratic"] += parts.quadratic.contains(1e-4)
    for name, count in held.items():
        assert abs(count / 1000 - 0.95) < 4 * (0.95 * 0.05 / 1000) ** 0.5, (name, count)
