import numpy as np
import pytest

from harness.metrics.slo import SloOptions
from harness.metrics.throughput import (
    concurrency,
    goodput,
    output_tokens_per_s,
    requests_per_s,
    steady_tokens_per_s,
    tokens_over_time,
)
from harness.metrics.window import Window, measured_window
from tests.support.slo_limits import slo as limits
from tests.support.synthetic_runs import MS, START, Schedule, tables


def slo(ttft: float | None = None, tpot: float | None = None, e2e: float | None = None) -> SloOptions:
    return limits(ttft_ms=ttft, tpot_ms=tpot, e2e_ms=e2e)


def test_tokens_are_counted_where_they_arrive_and_not_where_their_request_began():
    requests, events, _ = tables(Schedule(requests=1, slots=1, warmup=1, ttft_ms=100, gap_ms=10, tokens=50))
    half = Window(START, START + 200 * MS, "time")  # tokens at 100, 110, …, 200: eleven of fifty
    assert output_tokens_per_s(events, half) == pytest.approx(11 / 0.2)
    assert requests_per_s(requests, half) == 0


def test_an_event_of_several_tokens_counts_them_all():
    _, events, _ = tables(Schedule(requests=1, slots=1, warmup=0, tokens=4))
    events["tokens"] = events["tokens"] * 3
    assert output_tokens_per_s(events, Window(START, START + 1000 * MS, "time")) == 12


def test_requests_per_second_leaves_failed_ones_out():
    requests, _, _ = tables(Schedule(requests=8, slots=8, warmup=2, errors={3: "timeout"}))
    window = measured_window(requests)
    assert window is not None
    assert requests_per_s(requests, window) == pytest.approx(7 / window.seconds)


def test_the_steady_rate_leaves_the_lonely_tail_out():
    schedule = Schedule(requests=5, slots=4, warmup=0)
    requests, events, _ = tables(schedule)
    window = measured_window(requests, concurrency=4)
    assert window is not None
    round_s = (schedule.ttft_ms + (schedule.tokens - 1) * schedule.gap_ms + 0.1) / 1e3
    assert steady_tokens_per_s(requests, events, window) == pytest.approx(4 * schedule.tokens / round_s)
    assert output_tokens_per_s(events, window) == pytest.approx(5 * schedule.tokens / (2 * round_s))


def test_goodput_is_blank_without_a_limit():
    requests, _, _ = tables(Schedule())
    window = measured_window(requests)
    assert window is not None
    blank = {"goodput_per_s": None, "slo_attainment": None}
    assert goodput(requests, window, None) == goodput(requests, window, slo()) == blank


@pytest.mark.parametrize(
    ("limits", "attained"),
    [
        (slo(ttft=80), 0.75),  # a limit is kept at exactly its value
        (slo(ttft=79.9), 0.0),
        (slo(ttft=100, tpot=20), 0.75),
        (slo(ttft=100, tpot=19), 0.0),
        (slo(e2e=80 + 15 * 20), 0.75),
    ],
)
def test_a_failed_request_misses_and_the_others_are_judged_by_every_limit(
    limits: SloOptions, attained: float
):
    requests, _, _ = tables(Schedule(requests=4, slots=4, errors={0: "timeout"}))
    window = measured_window(requests)
    assert window is not None
    found = goodput(requests, window, limits)
    assert found["slo_attainment"] == attained
    assert found["goodput_per_s"] == pytest.approx(4 * attained / window.seconds)


def test_one_token_cannot_miss_a_limit_of_time_per_token():
    requests, _, _ = tables(Schedule(requests=4, tokens=1))
    window = measured_window(requests)
    assert window is not None
    assert goodput(requests, window, slo(tpot=1))["slo_attainment"] == 1.0


def test_concurrency_rises_to_the_slots_and_falls_to_zero():
    requests, _, _ = tables(Schedule(requests=12, slots=4, warmup=2))
    counts = concurrency(requests)["requests"]
    assert counts.max() == 4
    assert counts.iloc[-1] == 0


def test_the_parts_of_the_token_rate_add_up_to_the_whole():
    requests, events, _ = tables(Schedule(jitter=0.3))
    window = measured_window(requests)
    assert window is not None
    parts = tokens_over_time(events, window, bins=13)
    assert np.mean(parts["tokens_per_s"]) == pytest.approx(output_tokens_per_s(events, window))


def test_an_empty_window_has_no_rate():
    requests, events, _ = tables(Schedule())
    empty = Window(START, START, "count")
    assert output_tokens_per_s(events, empty) is None
    assert requests_per_s(requests, empty) is None
