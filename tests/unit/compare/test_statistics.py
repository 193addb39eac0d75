"""Against scipy, against closed forms, and against how often a verdict is wrong when there is no difference."""

import itertools
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import mannwhitneyu

from harness.compare.statistics import p_value, ratio_of_medians, smallest_p, verdict


def _runs(values: np.ndarray) -> list[list[float]]:
    return [[float(value)] for value in values]


@given(st.lists(st.floats(1, 100), min_size=2, max_size=6), st.floats(0.1, 10))
def test_a_scaled_copy_has_its_scale_as_ratio(values: list[float], scale: float):
    ratio = ratio_of_medians(_runs(np.array(values)), _runs(np.array(values) * scale))
    assert ratio.value == pytest.approx(scale)
    assert ratio.low is not None and ratio.high is not None
    assert ratio.low <= ratio.value * (1 + 1e-9) and ratio.value <= ratio.high * (1 + 1e-9)


def test_one_run_has_no_interval_and_nothing_no_ratio():
    assert ratio_of_medians([[2.0]], [[3.0], [3.0]]).low is None
    with pytest.raises(ValueError, match="at least one sample"):
        ratio_of_medians([[2.0], []], [[3.0]])


def test_the_interval_covers_the_true_ratio_about_as_often_as_it_says():
    draws = np.random.default_rng(5)
    covered = 0
    for _ in range(200):
        baseline = [draws.normal(100 + draws.normal(0, 3), 10, 10).tolist() for _ in range(8)]
        candidate = [draws.normal(120 + draws.normal(0, 3), 10, 10).tolist() for _ in range(8)]
        ratio = ratio_of_medians(baseline, candidate)
        covered += ratio.low <= 1.2 <= ratio.high  # type: ignore[operator]
    assert covered >= 0.9 * 200


def test_the_interval_knows_that_requests_of_one_run_share_its_luck():
    # Runs differ by 10 %, requests of one run by 0.1 %: pooling all requests would give an interval of a few 0.01 %.
    draws = np.random.default_rng(1)
    groups = [
        [(level * draws.normal(1, 0.001, 200)).tolist() for level in draws.normal(100, 10, 6)]
        for _ in range(2)
    ]
    ratio = ratio_of_medians(*groups)
    assert ratio.high - ratio.low > 0.02  # type: ignore[operator]


@pytest.mark.parametrize(("n", "m"), [(5, 5), (5, 7), (3, 3)])
def test_the_smallest_p_is_that_of_full_separation(n: int, m: int):
    low, high = list(range(n)), list(range(100, 100 + m))
    assert smallest_p(n, m) == pytest.approx(p_value(low, high)) == pytest.approx(2 / comb(n + m, n))
    assert mannwhitneyu(low, high, method="exact").pvalue == pytest.approx(smallest_p(n, m))


def test_equal_values_are_no_evidence():
    assert p_value([1.0] * 5, [1.0] * 5) == 1.0


@pytest.mark.parametrize(
    ("candidate", "higher", "word"),
    [
        ([120, 121, 119, 122, 118], True, "better"),
        ([120, 121, 119, 122, 118], False, "worse"),
        ([80, 81, 79, 82, 78], True, "worse"),
        ([100.1, 100.2, 99.9, 100, 99.8], True, "same"),
        ([100, 140, 70, 110, 95], True, "inconclusive"),
    ],
)
def test_verdicts(candidate: list[float], higher: bool, word: str):
    baseline = np.array([100, 100.4, 99.6, 100.2, 99.8])
    found = verdict(_runs(baseline), _runs(np.array(candidate)), higher, least_effect=0.03, alpha=0.0125)
    assert found.word == word, found


@pytest.mark.parametrize("runs", [1, 4])
def test_fewer_than_five_runs_a_side_are_never_a_verdict(runs: int):
    found = verdict(_runs(np.ones(runs)), _runs(np.full(9, 5.0)), True, 0.03, 0.05)
    assert (found.word, found.ratio.value) == ("inconclusive", 5.0)
    assert "a verdict takes 5" in found.why


def test_a_budget_that_so_few_runs_cannot_meet_is_said():
    found = verdict(_runs(np.arange(1, 6)), _runs(np.arange(101, 106)), True, 0.03, 0.001)
    assert found.word == "inconclusive" and "cannot show" in found.why


def test_without_a_difference_a_verdict_is_rarely_wrong():
    draws = np.random.default_rng(11)
    alarms = 0
    for _ in range(400):
        sides = [draws.normal(100, 5, 5) for _ in range(2)]
        found = verdict(_runs(sides[0]), _runs(sides[1]), True, 0.01, 0.0125)
        alarms += found.word in ("better", "worse")
    assert alarms <= 400 * 0.0125 + 3 * (400 * 0.0125) ** 0.5


def test_a_change_that_does_not_matter_is_no_change():
    baseline, candidate = np.linspace(99.9, 100.1, 6), np.linspace(101.9, 102.1, 6)
    found = verdict(_runs(baseline), _runs(candidate), True, least_effect=0.05, alpha=0.0125)
    assert found.word == "same"


def test_order_within_a_side_is_of_no_account():
    baseline = [[100.0], [103.0], [98.0], [101.0], [99.0]]
    words = {
        verdict(list(order), [[v[0] * 1.3] for v in order], True, 0.03, 0.0125).word
        for order in itertools.islice(itertools.permutations(baseline), 6)
    }
    assert words == {"better"}
