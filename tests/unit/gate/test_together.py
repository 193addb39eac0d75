from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import mannwhitneyu

from harness.gate.together import _orders, both_worse_p, least_p, look_worse_p

COSTS = st.lists(st.integers(1, 10_000).map(float), min_size=10, max_size=10, unique=True)
TIED = st.lists(st.integers(1, 6).map(float), min_size=10, max_size=10)


def test_every_order_of_small_looks_counted_one_by_one():
    """Two looks of 3 runs a side: 20 orders each, and 400 pairs of them."""
    orders = []
    for ours in combinations(range(6), 3):
        theirs = [value for value in range(6) if value not in ours]
        orders.append((theirs, list(ours)))
    ps = [mannwhitneyu(ours, theirs, alternative="greater", method="exact").pvalue for theirs, ours in orders]
    us = [sum(a > b for a in ours for b in theirs) for theirs, ours in orders]
    assert all(look_worse_p(order) == pytest.approx(p) for order, p in zip(orders, ps, strict=True))
    suspicious = [k for k in range(20) if ps[k] <= 0.2]
    assert len(suspicious) > 2
    for i, j in product(range(20), repeat=2):
        lean = [
            (k, m)
            for k in range(20)
            for m in range(20)
            if ps[k] <= 0.2 and ps[m] <= 0.2 and us[k] + us[m] >= us[i] + us[j]
        ]
        known = len(lean) / 400 if i in suspicious and j in suspicious else 1.0
        assert both_worse_p(orders[i], orders[j], 0.2) == pytest.approx(known)


@pytest.mark.parametrize(("theirs", "ours"), [(1, 1), (3, 5), (5, 3), (7, 6)])
def test_shares_of_orders_are_those_of_the_exact_test(theirs: int, ours: int):
    shares = _orders(theirs, ours)
    assert shares.sum() == pytest.approx(1)
    assert shares == pytest.approx(shares[::-1])
    baseline = np.arange(theirs) * 10.0
    candidate = np.arange(ours) * 10.0 + 15
    known = mannwhitneyu(candidate, baseline, alternative="greater", method="exact")
    assert shares[int(known.statistic) :].sum() == pytest.approx(known.pvalue)


@given(COSTS | TIED, COSTS | TIED, st.sampled_from([2, 3, 5]))
def test_what_leans_further_is_less_likely_and_a_level_of_a_look_is_nothing(
    first: list[float], second: list[float], split: int
):
    looks = [(values[:split], values[split:]) for values in (first, second)]
    p = both_worse_p(*looks, 0.15)
    theirs, ours = looks[1]
    assert both_worse_p(looks[0], ([one * 7 for one in theirs], [one * 7 for one in ours]), 0.15) == p
    worse = [one * 1.5 for one in ours]
    assert both_worse_p(looks[0], (theirs, worse), 0.15) <= p
    assert both_worse_p(looks[1], looks[0], 0.15) == pytest.approx(p)


def test_nights_without_a_change_alarm_as_often_as_it_says():
    """Whatever level each look has; 5 runs a side, at 1 %: four standard deviations of the count."""
    draws = np.random.default_rng(3)
    nights, alarms = 4000, 0
    for _ in range(nights):
        looks = [draws.normal(level, 1, (2, 5)) for level in draws.normal(0, 5, 2)]
        suspicious = all(
            mannwhitneyu(ours, theirs, alternative="greater").pvalue <= 0.15 for theirs, ours in looks
        )
        alarms += suspicious and both_worse_p(tuple(looks[0]), tuple(looks[1]), 0.15) <= 0.01
    known = 0.009086  # the largest level below 1 % that 252 × 252 orders have
    assert abs(alarms - nights * known) < 4 * np.sqrt(nights * known)


@given(st.lists(st.integers(1, 4).map(float), min_size=4, max_size=8), st.data())
def test_with_ties_p_is_never_smaller_than_over_the_runs_in_every_order(
    values: list[float], data: st.DataObject
):
    """Its own p over all orders of these very runs: at most a share of q of them has a p of at most q."""
    split = data.draw(st.integers(1, len(values) - 1))
    places = range(len(values))
    ps = []
    for ours in combinations(places, len(values) - split):
        theirs = [values[i] for i in places if i not in ours]
        ps.append(look_worse_p((theirs, [values[i] for i in ours])))
    for q in set(ps):
        assert np.mean([p <= q for p in ps]) <= q + 1e-9


@given(TIED, TIED, st.sampled_from([2, 3, 5]))
def test_it_is_1_unless_both_are_suspicious_and_never_0(first: list[float], second: list[float], split: int):
    looks = [(values[:split], values[split:]) for values in (first, second)]
    p = both_worse_p(*looks, 0.15)
    assert (p < 1) == all(look_worse_p(look) <= 0.15 for look in looks)
    assert p >= least_p(split, 10 - split) ** 2 - 1e-12


def test_two_runs_a_side_are_never_suspicious():
    tied = ([100.0, 100.0], [104.0, 104.0])
    assert look_worse_p(tied) == pytest.approx(least_p(2, 2)) == pytest.approx(1 / 6)
    assert both_worse_p(tied, tied, 0.15) == 1.0


def test_ties_are_to_the_candidates_favour():
    apart = ([1.0, 2, 3, 4, 5], [6.0, 7, 8, 9, 10])
    touching = ([1.0, 2, 3, 4, 6], [6.0, 7, 8, 9, 10])
    assert both_worse_p(apart, touching, 0.15) > both_worse_p(apart, apart, 0.15)
