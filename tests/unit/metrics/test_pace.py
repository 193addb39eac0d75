import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.metrics.pace import Pace, drifted, slower

TIMES = st.floats(0.01, 1e6)
PACES = st.builds(Pace, st.just(0), TIMES, TIMES)


@pytest.mark.parametrize(
    ("after", "ratio"),
    [
        (Pace(1, 10.0, 20.0), 1.0),
        (Pace(1, 11.0, 20.0), 1.1),
        (Pace(1, 11.0, 24.0), 1.2),  # the part that changed more
        (Pace(1, 5.0, 30.0), 0.5),  # twice as fast is further than 1.5 times slower
        (Pace(1, 8.0, 20.0), 0.8),
    ],
)
def test_the_part_that_changed_more_is_told(after: Pace, ratio: float):
    assert slower(Pace(0, 10.0, 20.0), after) == pytest.approx(ratio)


@given(PACES, PACES)
def test_a_drift_is_the_same_in_both_directions(one: Pace, other: Pace):
    assert drifted(one, other) == pytest.approx(drifted(other, one))
    assert drifted(one, other) >= 1
