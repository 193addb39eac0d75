"""What a history allows: against the t prediction interval, and by simulation where nights resemble each other."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.gate.floor import beyond, floor_of

ALPHA = 0.0025


def test_the_same_every_night_allows_nothing():
    floor = floor_of([23_040.0] * 20, ALPHA)
    assert floor is not None and floor.worsening == 0
    assert not beyond(23_040.0, floor, False)
    assert beyond(23_041.0, floor, False) and not beyond(23_039.0, floor, False)
    assert beyond(23_039.0, floor, True)


def test_few_nights_and_nights_that_only_drift_say_nothing():
    assert floor_of([1.0, 2.0], ALPHA) is None
    assert floor_of(list(np.exp(np.linspace(0, 1, 12))), ALPHA) is None


@pytest.mark.parametrize("alike", [0.0, 0.8])
def test_unchanged_nights_are_rarely_beyond(alike: float):
    draws = np.random.default_rng(3)
    alarms = known = 0
    for _ in range(1500):
        steps = draws.normal(size=41) * np.sqrt(1 - alike**2)
        steps[0] /= np.sqrt(1 - alike**2)
        level = np.empty(41)
        for night, step in enumerate(steps):
            level[night] = step if night == 0 else alike * level[night - 1] + step
        values = np.exp(0.1 * level)
        if (floor := floor_of(list(values[:-1]), ALPHA)) is not None:
            known += 1
            alarms += beyond(float(values[-1]), floor, False)
    assert alarms <= 8  # 0.0025 of 1500 is 3.75; Poisson gives more than 8 with 2 %
    assert known > 1200


@given(
    st.lists(st.floats(0.5, 2.0), min_size=5, max_size=40),
    st.floats(0.1, 10.0),
)
def test_units_do_not_matter(history: list[float], unit: float):
    one, other = floor_of(history, ALPHA), floor_of([value * unit for value in history], ALPHA)
    assert (one is None) == (other is None)
    if one is not None and other is not None:
        assert other.factor == pytest.approx(one.factor, rel=1e-5)
        assert other.usual == pytest.approx(one.usual * unit, rel=1e-9)
