"""Each check in a run in which it fires, in one in which it does not, and in one that it cannot judge."""

from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

from harness.calibrate.kept import Capacity
from harness.metrics.pace import Pace
from harness.metrics.window import Window, measured_window
from harness.validity import CHECKS, Evidence, evaluate
from tests.support.synthetic_runs import MS, START, Schedule, evidence_of, tables


def verdict(name: str, schedule: Schedule | None = None, edit: Any = None, **changes: Any) -> dict[str, Any]:
    """The entry of one check. edit: called with the three tables, which it may change in place."""
    schedule = schedule or Schedule()
    requests, events, telemetry = tables(schedule)
    if edit:
        edit(requests, events, telemetry)
    window = changes.pop("window", None) or measured_window(requests, concurrency=schedule.slots)
    evidence = evidence_of(requests, events, telemetry, window, **changes)
    return next(entry for entry in evaluate(evidence) if entry["check"] == name)


def measured_rows(column: str, values: Callable[[pd.Series], Any], first: int) -> Any:
    """An edit of `column` in the first measured requests."""

    def edit(requests: pd.DataFrame, events: pd.DataFrame, telemetry: pd.DataFrame) -> None:
        chosen = (requests["phase"] == "measured") & (requests["index"] < first)
        requests.loc[chosen, column] = values(requests.loc[chosen, column])

    return edit


def every_measured(column: str, value: Any) -> Any:
    return measured_rows(column, lambda old: value, first=10**6)


def test_a_sound_run_passes_every_check_that_can_be_evaluated():
    requests, events, telemetry = tables(Schedule())
    window = measured_window(requests, concurrency=4)
    assert window is not None
    entries = evaluate(evidence_of(requests, events, telemetry, window))
    assert [entry["check"] for entry in entries if entry["ok"] is False] == []
    unasked = ["tail_samples", "schedule_lag", "achieved_rate"]
    assert [entry["check"] for entry in entries if entry["ok"] is None] == unasked


def test_what_cannot_be_evaluated_says_why():
    nothing = {name: table.iloc[:0] for name, table in zip(("r", "e", "t"), tables(Schedule()), strict=True)}
    entries = evaluate(
        Evidence(nothing["r"], nothing["e"], nothing["t"], Window(0, 1, "count"), open_loop=True)
    )
    assert all(entry["why"] for entry in entries if entry["ok"] is None)
    assert {entry["check"] for entry in entries if entry["ok"] is False} == {"enough_requests"}


def test_declarations_are_complete_and_their_names_unique():
    assert len({check.name for check in CHECKS}) == len(CHECKS)
    summary_keys = set()
    for check in CHECKS:
        assert check.advice.endswith((".", "?"))
        summary_keys.update(check.spoils)
    from tests.support.synthetic_runs import summarise

    requests, events, telemetry = tables(Schedule())
    summary = summarise(requests, events, telemetry, Window(START, START + 1000 * MS, "time"), None)
    memory = {f"memory.{name}" for name in summary["memory"]}
    tails = {
        f"{name}.p99" for name, figure in summary.items() if isinstance(figure, dict) and "p99" in figure
    }
    assert summary_keys <= set(summary) | memory | tails


@pytest.mark.parametrize("errors, ok", [({}, True), ({3: "timeout"}, False)])
def test_no_errors(errors: dict[int, str], ok: bool):
    assert verdict("no_errors", Schedule(errors=errors))["ok"] is ok


@pytest.mark.parametrize("requests, ok", [(9, False), (10, True)])
def test_enough_requests(requests: int, ok: bool):
    assert verdict("enough_requests", Schedule(requests=requests))["ok"] is ok


@pytest.mark.parametrize("alive, ok", [(True, True), (False, False), (None, None)])
def test_engine_alive(alive: bool | None, ok: bool | None):
    assert verdict("engine_alive", engine_alive=alive)["ok"] is ok


@pytest.mark.parametrize(
    ("lag_ms", "ttft_ms", "limit", "ok"),
    [
        (9.9, 80, 10, True),
        (10.1, 80, 10, False),
        (45, 1000, 50, True),  # 5 % of the median TTFT where that is larger than 10 ms
        (55, 1000, 50, False),
    ],
)
def test_schedule_lag(lag_ms: float, ttft_ms: float, limit: float, ok: bool):
    found = verdict("schedule_lag", Schedule(lag_ms=lag_ms, ttft_ms=ttft_ms), open_loop=True)
    assert found["ok"] is ok
    assert found["limit"] == pytest.approx(limit)
    assert found["value"] == pytest.approx(lag_ms)


def test_schedule_lag_is_not_asked_of_a_closed_loop():
    assert verdict("schedule_lag", Schedule(lag_ms=500))["ok"] is None


@pytest.mark.parametrize("share, ok", [(0.8, True), (0.81, False), (None, None)])
def test_client_cpu(share: float | None, ok: bool | None):
    assert verdict("client_cpu", client_cpu_share=share)["ok"] is ok


@pytest.mark.parametrize(
    "capacity, share, ok",
    [
        (Capacity(400.0, "client", 8, "client"), 0.5, True),  # 4 of 8 streams
        (Capacity(10**6, "client", 3, "client"), 4 / 3, False),
        (Capacity(20.0, "client", 100, "client"), None, False),  # by its tokens per second
        (Capacity(10**6, "client", 3, "server"), 4 / 3, None),  # more than the truth server could show
        (Capacity(20.0, "search", 100, "client"), None, None),
        (Capacity(20.0, "client", 3, "server"), None, False),
        (Capacity(400.0, "server", 8, "search"), 0.5, True),
        (None, None, None),
    ],
)
def test_client_capacity(capacity: Capacity | None, share: float | None, ok: bool | None):
    found = verdict("client_capacity", Schedule(slots=4), client_capacity=capacity)
    assert found["ok"] is ok
    if share is not None:
        assert found["value"] == pytest.approx(share)
    assert ok is not None or found["why"]
    assert capacity is not None or "python -m harness.calibrate" in found["why"]


@pytest.mark.parametrize(
    ("own_core", "realtime", "lacks"),
    [
        (True, True, ()),
        (False, True, ("a core of its own",)),
        (False, False, ("a core of its own", "real-time scheduling")),
    ],
)
def test_a_client_worse_off_than_when_it_was_calibrated_is_not_called_exact(
    own_core: bool, realtime: bool, lacks: tuple[str, ...]
) -> None:
    enough = Capacity(400.0, "client", 8, "client", own_core=True, realtime=True)
    assert enough.lacking(own_core, realtime) == lacks
    found = verdict("client_capacity", Schedule(slots=4), client_capacity=enough, client_lacks=lacks)
    assert found["ok"] is (None if lacks else True)
    assert all(lack in (found["why"] or "") for lack in lacks)
    too_much = Capacity(400.0, "client", 3, "client", own_core=True, realtime=True)
    found = verdict("client_capacity", Schedule(slots=4), client_capacity=too_much, client_lacks=lacks)
    assert found["ok"] is False
    unknown = Capacity(400.0, "client", 8, "client")
    assert unknown.lacking(False, False) == ()


@pytest.mark.parametrize("lag, ok", [(10.0, True), (10.1, False), (None, None)])
def test_event_loop_lag(lag: float | None, ok: bool | None):
    assert verdict("event_loop_lag", event_loop_lag_ms=lag)["ok"] is ok


def test_a_late_client_spoils_what_it_sends_and_only_without_the_kernels_instants_what_it_reads():
    late = verdict("event_loop_lag", event_loop_lag_ms=11.0, kernel_stamps=True)
    assert (late["ok"], late["spoils"]) == (False, ["ttft_ms", "e2e_ms"])
    assert {"tpot_ms", "itl_ms", "ttft_from_send_ms"} <= set(
        verdict("event_loop_lag", event_loop_lag_ms=11.0)["spoils"]
    )


@pytest.mark.parametrize(
    ("stretch", "never_sent", "ok"),
    [(1.0, 0, True), (1.1, 0, True), (1.2, 0, False), (1.0, 2, True), (1.0, 4, False)],
)
def test_achieved_rate(stretch: float, never_sent: int, ok: bool):
    """Requests that leave over a longer time than they were due in, or not at all, were not offered as asked."""

    def edit(requests: pd.DataFrame, events: pd.DataFrame, telemetry: pd.DataFrame) -> None:
        rows = requests.index[requests["phase"] == "measured"]
        due = requests.loc[rows, "scheduled_ns"].astype("int64")
        requests.loc[rows, "sent_ns"] = (due.min() + (due - due.min()) * stretch).astype("int64")
        if never_sent:
            requests.loc[rows[-never_sent:], "sent_ns"] = pd.NA

    assert verdict("achieved_rate", Schedule(slots=1), open_loop=True, edit=edit)["ok"] is ok


@pytest.mark.parametrize(("apart_ms", "ok"), [(0.0, True), (0.4, True), (100.0, False)])
def test_achieved_rate_of_requests_that_are_all_due_at_once(apart_ms: float, ok: bool):
    """They leave one after another, within the lag that is allowed or over seconds (a bound on concurrency)."""

    def edit(requests: pd.DataFrame, events: pd.DataFrame, telemetry: pd.DataFrame) -> None:
        rows = requests.index[requests["phase"] == "measured"]
        due = int(requests.loc[rows, "scheduled_ns"].min())
        requests.loc[rows, "scheduled_ns"] = due
        requests.loc[rows, "sent_ns"] = [due + round(place * apart_ms * 1e6) for place in range(len(rows))]

    assert verdict("achieved_rate", Schedule(slots=1), open_loop=True, edit=edit)["ok"] is ok


def test_achieved_rate_is_not_asked_of_a_closed_loop():
    assert verdict("achieved_rate")["ok"] is None


@pytest.mark.parametrize("requests, ok", [(99, None), (100, False), (299, False), (300, True)])
def test_tail_samples(requests: int, ok: bool | None):
    assert verdict("tail_samples", Schedule(requests=requests, tokens=2))["ok"] is ok


@pytest.mark.parametrize("reads, ok", [(16, True), (13, True), (12, False), (1, False)])
def test_events_per_read(reads: int, ok: bool):
    """Sixteen events a request."""
    assert verdict("events_per_read", edit=every_measured("reads", reads))["ok"] is ok


def test_no_retries():
    assert verdict("no_retries")["ok"] is True
    assert verdict("no_retries", edit=measured_rows("retries", lambda old: 1, 6))["value"] == 0.25
    assert verdict("no_retries", edit=measured_rows("retries", lambda old: 1, 1))["ok"] is False


def test_a_record_older_than_retries_is_not_judged():
    def older(requests: pd.DataFrame, events: pd.DataFrame, telemetry: pd.DataFrame) -> None:
        del requests["retries"]

    assert verdict("no_retries", edit=older)["ok"] is None


def test_a_second_run_on_a_server_that_kept_its_cache():
    """The same plan again: the server finds every prompt, though the plan shares nothing within itself."""
    found = verdict("foreign_cache_hits", edit=measured_rows("cached_tokens", lambda old: 288, 24))
    assert found["ok"] is False and found["value"] == pytest.approx(0.96) and "repeat" in found["advice"]


@pytest.mark.parametrize("others, ok", [(0.0, True), (0.24, True), (0.26, False), (1.0, False)])
def test_quiet_machine(others: float, ok: bool):
    """Engine and client use 0.95 and 0.05 cores by the schedule; whatever the machine uses beyond that is foreign."""

    def edit(requests: pd.DataFrame, events: pd.DataFrame, telemetry: pd.DataFrame) -> None:
        seconds = (telemetry["ns"] - telemetry["ns"].iloc[0]) / 1e9
        telemetry["system_cpu_s"] = 500 + seconds * (0.95 + 0.05 + others)

    found = verdict("quiet_machine", edit=edit, client_cores=0.05)
    assert found["ok"] is ok
    assert found["value"] == pytest.approx(others, abs=1e-6)


def test_quiet_machine_is_not_known_without_samples():
    def edit(requests: pd.DataFrame, events: pd.DataFrame, telemetry: pd.DataFrame) -> None:
        telemetry["engine_cpu_s"] = float("nan")

    assert verdict("quiet_machine", edit=edit)["ok"] is None


@pytest.mark.parametrize("samples, ok", [(1, None), (5, None), (6, False)])
def test_quiet_machine_is_not_judged_from_samples_close_together(samples: int, ok: bool | None):
    """They are 200 ms apart, and something else keeps a core busy."""

    def edit(requests: pd.DataFrame, events: pd.DataFrame, telemetry: pd.DataFrame) -> None:
        telemetry["system_cpu_s"] = telemetry["engine_cpu_s"] + (telemetry["ns"] - START) / 1e9
        inside = telemetry.index[telemetry["ns"] >= START + 500 * MS]
        telemetry.loc[inside[samples:], "engine_cpu_s"] = float("nan")
        telemetry.loc[telemetry["ns"] < START + 500 * MS, "engine_cpu_s"] = float("nan")

    assert verdict("quiet_machine", edit=edit, client_cores=0.0)["ok"] is ok


@pytest.mark.parametrize(
    ("arithmetic_ms", "copying_ms", "value", "ok"),
    [
        (10.0, 20.0, 1.0, True),
        (11.0, 20.0, 1.1, True),
        (11.1, 20.0, 1.11, False),
        (10.0, 22.2, 1.11, False),  # the cores are as fast as before, the memory is not
        (9.0, 20.0, 1 / 0.9, False),  # a machine that got faster drifted too
    ],
)
def test_same_pace(arithmetic_ms: float, copying_ms: float, value: float, ok: bool):
    looks = (Pace(0, 10.0, 20.0), Pace(1, arithmetic_ms, copying_ms))
    found = verdict("same_pace", pace=looks, drift_limit=1.1)
    assert (found["ok"], found["limit"]) == (ok, 1.1)
    assert found["value"] == pytest.approx(value)
    assert {"ttft_ms", "tpot_ms", "output_tokens_per_s"} <= set(found["spoils"])


@pytest.mark.parametrize(
    ("looks", "limit"),
    [
        ((None, None), 1.1),  # a record from before looks were taken, or a server elsewhere
        ((Pace(0, 10.0, 20.0), None), 1.1),  # the run was broken off
        ((Pace(0, 10.0, 20.0), Pace(1, 99.0, 20.0)), None),
    ],
)
def test_same_pace_is_not_known_without_both_looks(looks: Any, limit: float | None):
    found = verdict("same_pace", pace=looks, drift_limit=limit)
    assert found["ok"] is None and "drift_limit" in found["why"]


def test_output_lengths():
    assert verdict("output_lengths")["ok"] is True
    assert (
        verdict("output_lengths", edit=measured_rows("output_tokens", lambda old: old - 1, 1))["ok"] is False
    )
    assert verdict("output_lengths", edit=every_measured("output_tokens_planned", pd.NA))["ok"] is None


def test_token_counts():
    def recounted(difference: int, first: int) -> Any:
        return measured_rows("output_tokens_tokenizer", lambda old: old + difference, first)

    assert verdict("token_counts", edit=recounted(5, 0))["ok"] is True
    assert verdict("token_counts", edit=recounted(1, 24))["ok"] is True  # an end-of-text token has no text
    assert verdict("token_counts", edit=recounted(5, 1))["ok"] is False  # 1 of 24 is over 2 %
    assert verdict("token_counts", Schedule(requests=100), edit=recounted(5, 2))["ok"] is True  # exactly 2 %
    assert verdict("token_counts", edit=every_measured("output_tokens_source", "tokenizer"))["ok"] is None


def test_prompt_lengths():
    assert verdict("prompt_lengths")["ok"] is True
    one_longer = measured_rows("prompt_tokens_usage", lambda old: old + 1, 1)  # a BOS that nobody planned
    assert verdict("prompt_lengths", edit=one_longer)["ok"] is False
    assert verdict("prompt_lengths", edit=every_measured("prompt_tokens_usage", pd.NA))["ok"] is None


def test_warmup_overlap():
    def ends_late(requests: pd.DataFrame, events: pd.DataFrame, telemetry: pd.DataFrame) -> None:
        start = requests.loc[requests["phase"] == "measured", "scheduled_ns"].min()
        requests.loc[(requests["phase"] == "warmup") & (requests["index"] == 1), "end_ns"] = start + 1

    def never_ends(requests: pd.DataFrame, events: pd.DataFrame, telemetry: pd.DataFrame) -> None:
        requests.loc[requests["phase"] == "warmup", "end_ns"] = pd.NA

    assert verdict("warmup_overlap")["ok"] is True  # the last one ends exactly when measuring begins
    assert verdict("warmup_overlap", edit=ends_late)["ok"] is False
    assert verdict("warmup_overlap", edit=never_ends)["value"] == 2
    assert verdict("warmup_overlap", Schedule(warmup=0))["ok"] is None


def test_warmup_errors():
    def fails(requests: pd.DataFrame, events: pd.DataFrame, telemetry: pd.DataFrame) -> None:
        requests.loc[(requests["phase"] == "warmup") & (requests["index"] == 1), "ok"] = False

    assert verdict("warmup_errors")["ok"] is True
    assert verdict("warmup_errors", edit=fails)["value"] == 0.5
    assert verdict("warmup_errors", edit=fails)["ok"] is False
    assert verdict("warmup_errors", Schedule(warmup=0))["ok"] is None


def test_foreign_cache_hits():
    cached = every_measured("cached_tokens", 30)  # a tenth of every prompt
    assert verdict("foreign_cache_hits")["ok"] is True
    assert verdict("foreign_cache_hits", edit=cached)["value"] == pytest.approx(0.1)
    assert verdict("foreign_cache_hits", edit=cached)["ok"] is False
    assert verdict("foreign_cache_hits", edit=cached, shareable_prompt_tokens=24 * 30)["ok"] is True
    assert verdict("foreign_cache_hits", shareable_prompt_tokens=None)["ok"] is None


def test_foreign_cache_hits_falls_back_on_the_engines_own_counter():
    def counted(requests: pd.DataFrame, events: pd.DataFrame, telemetry: pd.DataFrame) -> None:
        requests["cached_tokens"] = pd.array([pd.NA] * len(requests), dtype="Int64")
        telemetry["prefix_hit_tokens_total"] = range(0, 1000 * len(telemetry), 1000)

    def unknown(requests: pd.DataFrame, events: pd.DataFrame, telemetry: pd.DataFrame) -> None:
        counted(requests, events, telemetry)
        del telemetry["prefix_hit_tokens_total"]

    assert verdict("foreign_cache_hits", edit=counted)["ok"] is False
    assert verdict("foreign_cache_hits", edit=unknown)["ok"] is None


def test_steady_state():
    def second_half_slower(requests: pd.DataFrame, events: pd.DataFrame, telemetry: pd.DataFrame) -> None:
        late = (requests["phase"] == "measured") & (requests["index"] >= 12)
        requests.loc[late, "first_ns"] = requests.loc[late, "first_ns"] + 80 * MS

    schedule = Schedule(jitter=0.2)
    assert verdict("steady_state", schedule)["ok"] is True
    assert verdict("steady_state", schedule, edit=second_half_slower)["ok"] is False
    assert verdict("steady_state", Schedule(requests=19))["ok"] is None
    assert verdict("steady_state", schedule, edit=second_half_slower, even_load=False)["ok"] is None


def test_slots_that_open_one_after_another_are_no_drift():
    """24 requests one at a time, each twice as fast as the 36 that follow on all four slots."""

    def ramp(requests: pd.DataFrame, events: pd.DataFrame, telemetry: pd.DataFrame) -> None:
        rows = requests.index[(requests["phase"] == "measured") & (requests["index"] < 24)]
        start = requests.loc[requests["phase"] == "measured", "scheduled_ns"].min()
        due = [int(start) - (24 - number) * 400 * MS for number in range(24)]
        instants = {"scheduled": 0, "sent": 0, "headers": 40, "first": 40, "last": 340, "end": 340}
        for column, after_ms in instants.items():
            requests.loc[rows, f"{column}_ns"] = [instant + after_ms * MS for instant in due]

    schedule = Schedule(requests=60, jitter=0.05)
    assert verdict("steady_state", schedule)["ok"] is True
    assert verdict("steady_state", schedule, edit=ramp)["ok"] is True


def test_steady_state_sees_a_token_rate_that_fell():
    def tokens_thin_out(requests: pd.DataFrame, events: pd.DataFrame, telemetry: pd.DataFrame) -> None:
        middle = (events["ns"].min() + events["ns"].max()) // 2
        events.loc[events["ns"] < middle, "tokens"] = 3

    assert verdict("steady_state", Schedule(requests=100, jitter=0.2), edit=tokens_thin_out)["ok"] is False


def test_memory_samples():
    def blank(requests: pd.DataFrame, events: pd.DataFrame, telemetry: pd.DataFrame) -> None:
        telemetry["pss_bytes"] = pd.array([pd.NA] * len(telemetry), dtype="Int64")

    assert verdict("memory_samples")["ok"] is True
    assert verdict("memory_samples", edit=blank)["ok"] is False
