import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.metrics.percentiles import describe, percentile, percentile_interval

finite = st.floats(0, 1e9)


@given(st.lists(finite, min_size=1, max_size=200), st.sampled_from([50.0, 90.0, 95.0]))
def test_linear_between_order_statistics(values: list[float], q: float):
    ordered = sorted(values)
    position = (len(ordered) - 1) * q / 100
    low, high = ordered[math.floor(position)], ordered[math.ceil(position)]
    expected = low + (high - low) * (position - math.floor(position))
    assert percentile(values, q) == pytest.approx(expected)


@pytest.mark.parametrize(("q", "fewest"), [(99.0, 100), (99.9, 3000), (95.0, 1)])
def test_blank_below_the_number_of_values_it_needs(q: float, fewest: int):
    assert percentile(np.arange(fewest - 1), q) is None
    assert percentile(np.arange(fewest), q) is not None


def test_missing_values_are_left_out():
    assert percentile([1.0, math.nan, 3.0], 50) == 2.0


def test_every_key_is_there_for_no_values_at_all():
    nothing = describe([])
    assert nothing.pop("samples") == 0
    assert set(nothing) == {"mean", "p50", "p90", "p95", "p99", "p99_interval"}
    assert set(nothing.values()) == {None}


def test_the_interval_of_the_median_covers_it_as_often_as_it_says():
    random = np.random.default_rng(1)
    covered = 0
    for _ in range(400):
        interval = percentile_interval(random.exponential(size=60), 50)
        assert interval is not None
        covered += interval[0] <= math.log(2) <= interval[1]
    assert covered / 400 >= 0.93  # at least 95 % by construction; 0.93 allows for the 400 draws


def test_the_interval_of_p99_is_blank_until_its_upper_rank_exists():
    assert percentile_interval(np.arange(100), 99) is None
    low, high = percentile_interval(np.arange(1000), 99) or (0, 0)
    assert low < percentile(np.arange(1000), 99) < high  # type: ignore[operator]
