from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.metrics.latency import event_gaps, latencies, request_keys
from harness.records.frames import typed
from harness.records.schema import EVENT_COLUMNS
from tests.support.synthetic_runs import Schedule, tables


def events_of(rows: list[tuple[str, int, int, int]]) -> pd.DataFrame:
    records = [
        {"phase": phase, "index": index, "ns": ns, "tokens": tokens, "estimated": False}
        for phase, index, ns, tokens in rows
    ]
    return typed(records, EVENT_COLUMNS)


def gaps_of(rows: list[tuple[str, int, int, int]]) -> np.ndarray:
    events = events_of(rows)
    return event_gaps(request_keys(events), events["ns"].to_numpy())


def test_each_latency_of_a_known_schedule():
    requests, _, _ = tables(
        Schedule(tokens=11, ttft_ms=80, lag_ms=3, gap_ms=20, requests=1, slots=1, warmup=0)
    )
    found = latencies(requests).iloc[0]
    assert found["ttft_ms"] == pytest.approx(80)
    assert found["ttft_from_send_ms"] == pytest.approx(77)
    assert found["tpot_ms"] == pytest.approx(20)
    assert found["e2e_ms"] == pytest.approx(80 + 10 * 20)
    assert found["e2e_from_send_ms"] == pytest.approx(77 + 10 * 20)
    assert found["schedule_lag_ms"] == pytest.approx(3)


@pytest.mark.parametrize("tokens", [0, 1])
def test_tpot_of_fewer_than_two_tokens_is_undefined_and_not_zero(tokens: int):
    requests, _, _ = tables(Schedule(requests=1, warmup=0))
    requests["output_tokens"] = tokens
    assert np.isnan(latencies(requests)["tpot_ms"].iloc[0])


def test_a_failed_request_has_no_latency_but_the_clients_own_lag():
    requests, _, _ = tables(Schedule(requests=2, warmup=0, errors={1: "truncated"}))
    found = latencies(requests)
    assert found.loc[0].notna().all()
    assert found.loc[1].dropna().index.tolist() == ["schedule_lag_ms"]


def test_an_instant_that_never_came_leaves_the_latency_undefined():
    requests, _, _ = tables(Schedule(requests=1, warmup=0))
    requests["first_ns"] = pd.array([pd.NA], dtype="Int64")
    found = latencies(requests).iloc[0]
    assert np.isnan(found["ttft_ms"])
    assert np.isnan(found["tpot_ms"])
    assert found["e2e_ms"] > 0


def test_differences_of_large_instants_keep_their_nanoseconds():
    requests, _, _ = tables(Schedule(requests=1, warmup=0))
    uptime = 2**62  # a float64 this large counts in steps of 1024
    for name in ("scheduled_ns", "sent_ns", "first_ns", "last_ns"):
        requests[name] = pd.array([uptime], dtype="Int64")
    requests["first_ns"] = requests["first_ns"] + 1
    assert latencies(requests)["ttft_ms"].iloc[0] == 1e-6


def test_gaps_stay_within_a_request_and_a_phase():
    gaps = gaps_of(
        [
            ("warmup", 0, 5_000_000, 1),
            ("measured", 0, 10_000_000, 1),
            ("measured", 1, 11_000_000, 1),
            ("measured", 0, 14_000_000, 3),
            ("measured", 1, 11_000_000, 1),
        ]
    )
    assert gaps.tolist() == [4.0, 0.0]


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 10**12)), max_size=60))
def test_gaps_are_what_a_plain_loop_over_requests_finds(arrivals: list[tuple[int, int]]):
    gaps = gaps_of([("measured", index, ns, 1) for index, ns in arrivals])
    expected = []
    for index in range(5):
        instants = sorted(ns for i, ns in arrivals if i == index)
        expected += [(b - a) / 1e6 for a, b in pairwise(instants)]
    assert gaps.tolist() == expected


def test_no_events_no_gaps():
    assert not len(gaps_of([]))
