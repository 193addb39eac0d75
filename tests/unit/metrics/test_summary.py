import pandas as pd
import pytest

from harness.metrics.summary import summarise
from harness.metrics.window import Window, measured_window
from tests.support.synthetic_runs import Schedule, tables


def summary_of(schedule: Schedule) -> dict:
    requests, events, telemetry = tables(schedule)
    window = measured_window(requests, concurrency=schedule.slots)
    assert window is not None
    return summarise(requests, events, telemetry, window, None)


def test_a_constant_schedule_gives_its_own_constants():
    found = summary_of(Schedule(requests=100, tokens=16, slots=4, ttft_ms=80, lag_ms=0.5, gap_ms=20))
    for name, value in {
        "ttft_ms": 80,
        "ttft_from_send_ms": 79.5,
        "tpot_ms": 20,
        "itl_ms": 20,
        "e2e_ms": 380,
    }.items():
        for key in ("mean", "p50", "p90", "p95", "p99"):
            assert found[name][key] == pytest.approx(value), (name, key)
    window_s = 25 * 0.3801
    assert found["output_tokens_per_s"] == pytest.approx(1600 / window_s)
    assert found["requests_per_s"] == pytest.approx(100 / window_s)
    assert found["requests"] == {"ok": 100, "errors": {}, "retried": 0}


def test_p99_of_requests_is_blank_below_a_hundred_and_that_of_gaps_counts_gaps():
    found = summary_of(Schedule(requests=99, tokens=16))
    assert found["ttft_ms"]["p99"] is None
    assert found["itl_ms"]["p99"] is not None


def test_warm_up_is_in_no_figure():
    plain, warmed = summary_of(Schedule(warmup=0)), summary_of(Schedule(warmup=7))
    for name in (
        "ttft_ms",
        "tpot_ms",
        "itl_ms",
        "e2e_ms",
        "requests",
        "output_tokens_per_s",
        "requests_per_s",
    ):
        assert plain[name] == warmed[name], name


def test_errors_are_counted_by_kind_and_enter_no_latency():
    found = summary_of(Schedule(requests=20, errors={2: "timeout", 5: "timeout", 9: "http_429"}))
    assert found["requests"] == {"ok": 17, "errors": {"timeout": 2, "http_429": 1}, "retried": 0}
    assert found["ttft_ms"]["samples"] == found["e2e_ms"]["samples"] == 17
    assert found["itl_ms"]["samples"] == 17 * 15


def test_every_request_failed():
    found = summary_of(Schedule(requests=3, errors=dict.fromkeys(range(3), "connect")))
    assert found["ttft_ms"]["p50"] is None
    assert found["requests"]["ok"] == 0
    assert found["requests_per_s"] == 0


def test_no_rows_at_all_keep_every_key():
    requests, events, telemetry = (table.iloc[:0] for table in tables(Schedule()))
    found = summarise(requests, events, telemetry, Window(0, 1, "count"), None)
    assert set(found) == set(summary_of(Schedule()))
    assert isinstance(requests, pd.DataFrame)
