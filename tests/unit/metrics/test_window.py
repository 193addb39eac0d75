import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.metrics.window import Window, in_flight, measured_window, steady_intervals
from tests.support.synthetic_runs import MS, START, Schedule, tables


def test_bounded_by_count_it_reaches_from_first_schedule_to_last_end():
    requests, _, _ = tables(Schedule(requests=8, slots=4, warmup=3))
    window = measured_window(requests)
    assert window is not None
    measured = requests[requests["phase"] == "measured"]
    assert (window.start_ns, window.end_ns) == (measured["scheduled_ns"].min(), measured["end_ns"].max())
    assert window.bounded_by == "count"


def test_bounded_by_time_it_closes_after_its_duration_whatever_still_runs():
    requests, _, _ = tables(Schedule(warmup=0))
    window = measured_window(requests, closed_ns=START + 500 * MS)
    assert window == Window(START, START + 500 * MS, "time")


def test_none_where_nothing_was_measured():
    requests, _, _ = tables(Schedule())
    assert measured_window(requests[requests["phase"] == "warmup"]) is None


def test_interrupted_before_any_end_it_closes_with_the_last_thing_that_happened():
    requests, _, _ = tables(Schedule(requests=1, warmup=0))
    for name in ("first_ns", "last_ns", "end_ns"):
        requests[name] = pd.array([pd.NA], dtype="Int64")
    window = measured_window(requests)
    assert window is not None
    assert window.end_ns == requests["headers_ns"].iloc[0]


def test_only_requests_scheduled_inside_are_counted():
    requests, _, _ = tables(Schedule(requests=8, slots=4, warmup=2, ttft_ms=80, gap_ms=20, tokens=16))
    window = Window(
        START, START + 100 * MS, "time"
    )  # only the first four, those of the other round come later
    assert window.requests(requests)["index"].tolist() == [0, 1, 2, 3]


def test_record_and_back():
    window = Window(3, 9, "count", 4)
    assert Window.from_record(window.to_record()) == window


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=20), st.integers(0, 99))
def test_in_flight_counts_the_intervals_that_hold_an_instant(pairs: list[tuple[int, int]], instant: int):
    starts = np.array([start for start, _ in pairs], dtype="int64")
    ends = np.array([start + length for start, length in pairs], dtype="int64")
    instants, counts = in_flight(starts, ends)
    position = np.searchsorted(instants, instant, side="right") - 1
    found = counts[position] if position >= 0 else 0
    assert found == sum(start <= instant < start + length for start, length in pairs)


def test_steady_is_while_nine_tenths_of_the_target_are_in_flight():
    # 5 requests on 4 slots: all four run until the first round ends, then one runs alone
    requests, _, _ = tables(Schedule(requests=5, slots=4, warmup=0))
    window = measured_window(requests, concurrency=4)
    assert window is not None
    first_round_ends = int(requests["end_ns"].iloc[0])
    assert steady_intervals(requests, window) == [(START, first_round_ends)]


@pytest.mark.parametrize("target", [None, 9])
def test_no_steady_part_without_a_target_or_where_it_is_never_reached(target: int | None):
    requests, _, _ = tables(Schedule(slots=4))
    window = measured_window(requests, concurrency=target)
    assert window is not None
    assert steady_intervals(requests, window) == []


def test_think_time_between_turns_keeps_the_session_in_flight():
    requests, _, _ = tables(Schedule(requests=4, slots=2, warmup=0))
    requests["session"] = [0, 1, 0, 1]
    shifted = requests["index"] >= 2
    for name in ("scheduled_ns", "sent_ns", "headers_ns", "first_ns", "last_ns", "end_ns"):
        requests.loc[shifted, name] = requests.loc[shifted, name] + 700 * MS
    window = measured_window(requests, concurrency=2)
    assert window is not None
    assert steady_intervals(requests, window) == [(window.start_ns, window.end_ns)]
