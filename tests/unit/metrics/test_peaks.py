"""The peaks of a run, by tables small enough to count by hand."""

import numpy as np

from harness.metrics.peaks import busiest_second, most_at_once

S = 1_000_000_000


def test_most_at_once():
    assert most_at_once(np.array([], dtype="int64"), np.array([], dtype="int64")) == 0
    assert most_at_once(np.array([0, 5, 20]), np.array([10, 15, 30])) == 2
    assert most_at_once(np.array([0, 10]), np.array([10, 20])) == 2  # touching counts as together
    assert most_at_once(np.array([0, 11]), np.array([10, 20])) == 1


def test_busiest_second():
    assert busiest_second(np.array([], dtype="int64")) == 0
    assert busiest_second(np.array([7 * S])) == 1
    assert busiest_second(np.array([0, S // 2, S, S + 1, S + 2, 3 * S])) == 3
