"""The paired test against exact counts, and what it must never do."""

from itertools import combinations
from math import comb
from statistics import median

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.gate.night import BASELINE, turns
from harness.gate.paired import Limits, Series, leans, noise, regressed, visible, worse_p, worsening

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
    assert worse_p(_series(baseline, candidate)) == pytest.approx(as_bad / comb(10, 5))


@given(times, times)
def test_throughput_is_time_upside_down(baseline: list[float], candidate: list[float]):
    slow = _series(baseline, candidate)
    few = _series([1 / value for value in baseline], [1 / value for value in candidate], higher=True)
    assert worse_p(few) == pytest.approx(worse_p(slow))
    assert noise(few) == pytest.approx(noise(slow))


def test_how_much_worse_is_of_the_medians():
    assert worsening(_series([10, 20, 30], [22, 1, 99])) == pytest.approx(0.1)
    assert worsening(_series([100], [90], higher=True)) == pytest.approx(0.1)
    assert worsening(_series([100], [110], higher=True)) == pytest.approx(-0.1)


def test_equal_values_and_improvements_never_lean():
    same = _series([5.0] * 5, [5.0] * 5)
    assert worse_p(same) == 1.0 and not leans(same, LIMITS)
    assert not leans(_series([10, 11, 12, 13, 14], [5, 6, 7, 8, 9]), LIMITS)


def test_a_certain_change_that_does_not_matter_does_not_lean():
    tiny = _series([10.0, 10.001, 10.002, 10.003, 10.004], [10.01, 10.011, 10.012, 10.013, 10.014])
    assert worse_p(tiny) == pytest.approx(1 / comb(10, 5))
    assert not leans(tiny, LIMITS)


def test_a_regression_must_hold_in_the_second_look():
    base = [10.0, 10.1, 9.9, 10.2, 9.8]
    worse = _series(base, [value * 1.1 for value in base])
    better = _series(base, [value * 0.9 for value in base])
    assert regressed(worse, worse, LIMITS)
    assert not regressed(worse, better, LIMITS)
    assert not regressed(better, worse, LIMITS)


def test_one_run_that_is_far_off_hides_nothing_and_alarms_nobody():
    base = [10.0, 10.1, 9.9, 10.2, 9.8]
    slow = [value * 1.12 for value in base]
    assert regressed(_series([*base[:4], 30.0], slow), _series(base, slow), LIMITS)
    once = _series(base, [*base[:4], 30.0])
    assert not regressed(once, once, LIMITS)
    assert noise(_series([*base[:4], 30.0], base)) < 0.05


@pytest.mark.parametrize(("ours", "theirs"), [(0.04, 0.04), (0.004, 0.04), (0.04, 0.004)])
def test_noise_is_the_standard_deviation_of_the_logarithm(ours: float, theirs: float):
    """Of two sides that differ in it the root mean square, of which a difference of two means consists."""
    draws, spread = np.random.default_rng(0), [[theirs], [ours]]
    found = [noise(_series(*np.exp(draws.normal(0, spread, (2, 10))).tolist())) for _ in range(400)]
    assert median(found) == pytest.approx(np.sqrt((ours**2 + theirs**2) / 2), rel=0.1)


@pytest.mark.parametrize("deviations", [(0.04, 0.04), (0.005, 0.06), (0.06, 0.005)])
def test_what_is_called_visible_is_found_four_times_in_five(deviations: tuple[float, float]):
    """Where one side is quiet the other one's noise hides as much, and the test over ranks sees a little less."""
    draws, spread = np.random.default_rng(1), np.array(deviations)[:, None]
    size = visible(_series(*np.exp(draws.normal(0, spread, (2, 400))).tolist()), 5, LIMITS)
    hits = 0
    for _ in range(400):
        looks = [np.exp(draws.normal(0, spread, (2, 5))) * [[1], [1 + size]] for _ in range(2)]
        hits += regressed(*(_series(*look.tolist()) for look in looks), LIMITS)
    assert (0.72 if deviations[0] == deviations[1] else 0.62) < hits / 400 < 0.95


@given(st.integers(1, 12))
def test_turns_are_fair_to_both_sides(repeats: int):
    order = list(turns(repeats))
    assert order.count(BASELINE) == repeats == len(order) // 2
    if repeats % 2 == 0:  # a steady drift adds the same to both
        places = [
            sum(i for i, one in enumerate(order) if (one == BASELINE) is mine) for mine in (True, False)
        ]
        assert places[0] == places[1]
