"""The paired test against exact counts, and what it must never do."""

from itertools import combinations
from math import comb
from statistics import median

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.gate.night import BASELINE, turns
from harness.gate.paired import (
    Limits,
    Series,
    leans,
    leans_twice,
    noise,
    regressed,
    too_few,
    visible,
    worse_p,
    worsening,
)

LIMITS = Limits(alpha=0.0025, suspicion=0.15, least_effect=0.03)
times = st.lists(st.integers(1, 1000).map(float), min_size=5, max_size=5, unique=True)


def _series(baseline: list[float], candidate: list[float], higher: bool = False) -> Series:
    return Series(tuple(baseline), tuple(candidate), higher)


@given(times, times)
def test_p_counts_the_orders_that_are_as_bad(baseline: list[float], candidate: list[float]):
    both = [*baseline, *candidate]
    if len(set(both)) < 10:
        return
    ranks = {value: rank for rank, value in enumerate(sorted(both))}
    found = sum(ranks[value] for value in candidate)
    as_bad = sum(sum(chosen) >= found for chosen in combinations(range(10), 5))
    assert worse_p([_series(baseline, candidate)], LIMITS) == pytest.approx(as_bad / comb(10, 5))


@given(times, times)
def test_throughput_is_time_upside_down(baseline: list[float], candidate: list[float]):
    slow = _series(baseline, candidate)
    few = _series([1 / value for value in baseline], [1 / value for value in candidate], higher=True)
    assert worse_p([few], LIMITS) == pytest.approx(worse_p([slow], LIMITS))
    assert noise([few]) == pytest.approx(noise([slow]))


def test_how_much_worse_is_of_the_medians():
    assert worsening([_series([10, 20, 30], [22, 1, 99])]) == pytest.approx(0.1)
    assert worsening([_series([100], [90], higher=True)]) == pytest.approx(0.1)
    assert worsening([_series([100], [110], higher=True)]) == pytest.approx(-0.1)


def test_equal_values_and_improvements_never_lean():
    same = _series([5.0] * 5, [5.0] * 5)
    assert worse_p([same], LIMITS) == 1.0 and not leans(same, LIMITS)
    assert not leans(_series([10, 11, 12, 13, 14], [5, 6, 7, 8, 9]), LIMITS)


def test_a_certain_change_that_does_not_matter_does_not_lean():
    tiny = _series([10.0, 10.001, 10.002, 10.003, 10.004], [10.01, 10.011, 10.012, 10.013, 10.014])
    assert worse_p([tiny], LIMITS) == pytest.approx(1 / comb(10, 5))
    assert not leans(tiny, LIMITS)


def test_a_regression_must_hold_in_the_second_look():
    base = [10.0, 10.1, 9.9, 10.2, 9.8]
    worse = _series(base, [value * 1.1 for value in base])
    better = _series(base, [value * 0.9 for value in base])
    assert regressed([worse, worse], LIMITS)
    assert not regressed([worse, better], LIMITS)
    assert not regressed([better, worse], LIMITS)


def test_one_run_that_is_far_off_hides_nothing_and_alarms_nobody():
    base = [10.0, 10.1, 9.9, 10.2, 9.8]
    slow = [value * 1.12 for value in base]
    assert regressed([_series([*base[:4], 30.0], slow), _series(base, slow)], LIMITS)
    once = _series(base, [*base[:4], 30.0])
    assert not regressed([once, once], LIMITS)
    assert noise([_series([*base[:4], 30.0], base)]) < 0.05


@pytest.mark.parametrize(("ours", "theirs"), [(0.04, 0.04), (0.004, 0.04), (0.04, 0.004)])
def test_noise_is_the_standard_deviation_of_the_logarithm(ours: float, theirs: float):
    """Of two sides that differ in it the root mean square, of which a difference of two means consists."""
    draws, spread = np.random.default_rng(0), [[theirs], [ours]]
    found = [noise([_series(*np.exp(draws.normal(0, spread, (2, 10))).tolist())]) for _ in range(400)]
    assert median(found) == pytest.approx(np.sqrt((ours**2 + theirs**2) / 2), rel=0.1)


@pytest.mark.parametrize("deviations", [(0.04, 0.04), (0.005, 0.06), (0.06, 0.005)])
def test_what_is_called_visible_is_found_four_times_in_five(deviations: tuple[float, float]):
    """Where one side is quiet the other one's noise hides as much, and the test over ranks sees a little less."""
    draws, spread = np.random.default_rng(1), np.array(deviations)[:, None]
    size = visible([_series(*np.exp(draws.normal(0, spread, (2, 400))).tolist())], 5, LIMITS)
    hits = 0
    for _ in range(400):
        looks = [np.exp(draws.normal(0, spread, (2, 5))) * [[1], [1 + size]] for _ in range(2)]
        hits += regressed([_series(*look.tolist()) for look in looks], LIMITS)
    assert (0.72 if deviations[0] == deviations[1] else 0.62) < hits / 400 < 0.95


@given(times, times, times, times, st.sampled_from([0.25, 0.7, 1.3, 40.0]), st.booleans())
def test_the_level_of_a_look_changes_nothing_that_is_found(
    a: list[float], b: list[float], c: list[float], d: list[float], factor: float, higher: bool
):
    """A machine slower by `factor` in the second look is so for both sides, and so for no finding."""
    first, second = _series(a, b, higher), _series(c, d, higher)
    moved = _series([factor * value for value in c], [factor * value for value in d], higher)
    still, after = [first, second], [first, moved]
    assert worsening(after) == pytest.approx(worsening(still))
    assert noise(after) == pytest.approx(noise(still))
    assert worse_p(after, LIMITS) == worse_p(still, LIMITS)
    assert visible(after, 5, LIMITS) == pytest.approx(visible(still, 5, LIMITS))


def test_changes_of_two_looks_multiply():
    looks = [_series([100.0], [110.0]), _series([10.0], [13.0])]
    assert worsening(looks) == pytest.approx((1.1 * 1.3) ** 0.5 - 1)
    higher = [_series([100.0], [90.0], higher=True), _series([10.0], [10.0], higher=True)]
    assert worsening(higher) == pytest.approx(1 - 0.9**0.5)


def test_two_looks_that_are_not_both_suspicious_are_tested_by_their_weighted_sum():
    """3 runs a side: U over 20 orders each, counted one by one."""
    us = [
        sum(one > other for one in ours for other in set(range(6)) - set(ours))
        for ours in combinations(range(6), 3)
    ]
    looks = [_series([1.0, 2.0, 5.0], [3.0, 4.0, 6.0]), _series([1.0, 3.0, 5.0], [2.0, 4.0, 6.0])]
    as_far = sum(one + other >= 7 + 6 for one in us for other in us)
    assert worse_p(looks, LIMITS) == pytest.approx(as_far / 400)


def test_what_leans_twice_is_what_regresses_but_for_the_errors_allowed():
    """And the p that is shown is the one it is judged by: the second look may be the smaller change."""
    base = [10.0, 10.1, 9.9, 10.2, 9.8]
    much, little = (_series(base, [value * factor for value in base]) for factor in (1.2, 1.025))
    looks = [much, little]
    assert worsening([little]) < LIMITS.least_effect <= worsening(looks)
    for alpha in (1e-5, 1e-4, 1e-3, 0.01, 0.02):
        limits = Limits(alpha, suspicion=0.15, least_effect=0.03)
        assert leans_twice(looks, limits)
        assert regressed(looks, limits) == (worse_p(looks, limits) <= alpha)
    assert not leans_twice([_series(base, [value * 1.031 for value in base]), _series(base, base)], LIMITS)


def test_looks_that_could_never_fail_a_night_are_too_few():
    tied = _series([100.0, 100.0], [104.0, 104.0])  # 1 of 6 orders: above the suspicion
    assert not leans(tied, LIMITS) and not regressed([tied, tied], LIMITS)
    assert too_few([tied], LIMITS) and too_few([tied, tied], LIMITS)
    three, four = (_series([1.0, 2, 3, 4][:n], [11.0, 12, 13, 14][:n]) for n in (3, 4))
    strict = Limits(alpha=1 / 401, suspicion=0.15, least_effect=0.03)  # twice 1 of 20 orders is 1 / 400
    assert too_few([three], strict) and not regressed([three, three], strict)
    assert not too_few([four], strict) and regressed([four, four], strict)
    assert not too_few([three, four], strict) and regressed([three, four], strict)
    loose = Limits(alpha=1 / 400, suspicion=1 / 20, least_effect=0.03)  # the very least of both
    assert not too_few([three], loose) and regressed([three, three], loose)
    one = _series([1.0], [float(n) for n in range(2, 12)])
    assert too_few([one], Limits(0.9, 0.9, 0.03))  # whose noise nobody knows


@given(st.integers(1, 12))
def test_turns_are_fair_to_both_sides(repeats: int):
    order = list(turns(repeats))
    assert order.count(BASELINE) == repeats == len(order) // 2
    if repeats % 2 == 0:  # a steady drift adds the same to both
        places = [
            sum(i for i, one in enumerate(order) if (one == BASELINE) is mine) for mine in (True, False)
        ]
        assert places[0] == places[1]
