"""Cost against prices worked out by hand."""

import pytest

from harness.metrics.cost import concurrent_users, cost_summary
from harness.metrics.summary import summarise
from harness.metrics.window import measured_window
from tests.support.synthetic_runs import Schedule, tables

SUMMARY = {"output_tokens_per_s": 200.0, "requests_per_s": 4.0, "e2e_ms": {"mean": 2500.0}}


def test_cost_by_hand():
    """3.60 an hour is 0.001 a second: 200 tokens of it, or 4 queries; 8 users share the hour."""
    found = cost_summary(SUMMARY, 3.6, "EUR", 8)
    assert found["currency"] == "EUR"
    assert found["per_million_output_tokens"] == pytest.approx(5.0)
    assert found["per_query"] == pytest.approx(0.00025)
    assert found["per_user_hour"] == pytest.approx(0.45)


def test_no_price_no_cost_and_nothing_served_is_not_free():
    assert cost_summary(SUMMARY, None, "EUR", 8) == {}
    nothing = cost_summary({"output_tokens_per_s": 0.0, "requests_per_s": None}, 3.6, "EUR", None)
    assert [nothing[key] for key in ("per_million_output_tokens", "per_query", "per_user_hour")] == [None] * 3


def test_users_of_a_closed_loop_are_its_sessions():
    assert concurrent_users({"concurrency": 16}, SUMMARY) == 16
    assert concurrent_users({"concurrency": 16}, {"requests_per_s": 0.0}) is None  # it served nobody


def test_a_closed_loop_serves_no_more_users_than_there_were_sessions():
    assert concurrent_users({"concurrency": 16}, SUMMARY | {"sessions": 5}) == 5
    assert concurrent_users({"concurrency": 16}, SUMMARY | {"sessions": 40}) == 16
    requests, events, telemetry = tables(Schedule(requests=6, slots=8))
    window = measured_window(requests, concurrency=8)
    assert window is not None
    summary = summarise(requests, events, telemetry, window, None)
    assert concurrent_users(window.to_record(), summary) == 6


def test_users_of_an_open_loop_follow_littles_law():
    """4 a second that stay for 2.5 s each are 10 at a time."""
    assert concurrent_users({"concurrency": None}, SUMMARY) == pytest.approx(10)
    assert concurrent_users({}, {"requests_per_s": 4.0, "e2e_ms": {"mean": None}}) is None
