"""The client against a server that knows what it sent: counts, order of instants, sessions, arrival processes."""

import dataclasses
import os
from itertools import pairwise
from pathlib import Path

import pandas
import pytest

from harness.client import Progress, measure
from harness.client.chunk_reader import compiled_reader
from harness.client.job import Measurement
from harness.records.schema import EVENT_COLUMNS, REQUEST_COLUMNS
from tests.support.client_jobs import job, load, plan, quiet
from tests.support.fixtures import ScriptedServer, scripted_server
from tests.support.scripts import Script


def in_order(measured: Measurement) -> None:
    """scheduled ≤ sent ≤ headers ≤ first ≤ last ≤ end in every successful row."""
    rows = measured.requests[measured.requests["ok"]]
    names = ["scheduled_ns", "sent_ns", "headers_ns", "first_ns", "last_ns", "end_ns"]
    for before, after in pairwise(names):
        assert (rows[before] <= rows[after]).all(), (before, after)


def test_every_token_is_counted_and_the_tables_have_the_schema(
    server: ScriptedServer, tmp_path: Path
) -> None:
    measured = measure(job(server.base_url, plan(40), tmp_path), quiet)
    rows = measured.requests
    assert list(rows["index"]) == list(range(40))
    assert rows["ok"].all() and (rows["output_tokens"] == 5).all() and (rows["events"] == 5).all()
    assert (rows["output_tokens_source"] == "usage").all() and (rows["output_tokens_tokenizer"] == 5).all()
    assert (rows["prompt_tokens_usage"] == 4).all() and (rows["cached_tokens"] == 3).all()
    assert (rows["text"] == " word" * 5).all()
    assert {name: str(dtype) for name, dtype in rows.dtypes.items()} == dict(REQUEST_COLUMNS)
    assert {name: str(dtype) for name, dtype in measured.events.dtypes.items()} == dict(EVENT_COLUMNS)
    assert len(measured.events) == 200 and measured.events["tokens"].sum() == 200
    assert measured.events["ns"].is_monotonic_increasing
    in_order(measured)
    assert measured.window_start_ns == rows["scheduled_ns"].min()
    assert measured.window_end_ns == rows["end_ns"].max()
    assert not measured.stopped_early and measured.client["reconnects"] == 0
    assert measured.client["failure"] is None and measured.client["gc_enabled"] is False
    assert (measured.client["stamps"], measured.client["stamps_by_process"]) == ("kernel", 0)


@pytest.mark.parametrize("compile", [True, False])
def test_arrivals_follow_the_servers_own_sends(server: ScriptedServer, tmp_path: Path, compile: bool) -> None:
    """Nothing is seen before it was sent, and before the next event of the same stream was sent only by luck."""
    asked = dataclasses.replace(job(server.base_url, plan(20, tokens=10), tmp_path), compile=compile)
    measured = measure(asked, quiet)
    compiled = compile and compiled_reader() is not None
    assert measured.client["reader"] == ("compiled" if compiled else "python")
    sent = {int(entry["key"]): entry for entry in server.record()}
    for index, events in measured.events.groupby("index"):
        truth = sent[int(str(index))]["sends"]
        assert len(truth) == len(events)
        assert all(ours >= theirs for ours, theirs in zip(events["ns"], truth, strict=True))
    rows = measured.requests.set_index("index")
    assert all(rows.loc[index, "sent_ns"] <= entry["received_ns"] for index, entry in sent.items())
    assert all(rows.loc[index, "headers_ns"] >= entry["headers_ns"] for index, entry in sent.items())


def test_bodies_hold_what_was_planned(server: ScriptedServer, tmp_path: Path) -> None:
    requests = [*plan(1), *(r for r in plan(2, tokens=None) if r.index == 1)]
    measure(job(server.base_url, requests, tmp_path, extras={"top_k": 1}, return_token_ids=True), quiet)
    fixed, free = sorted(server.record(), key=lambda entry: entry["key"])
    assert fixed["body"] == {
        "model": "scripted",
        "prompt": [0, 7, 8, 9],
        "max_tokens": 5,
        "min_tokens": 5,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0.0,
        "return_token_ids": True,
        "top_k": 1,
    }
    assert (
        "min_tokens" not in free["body"]
        and "ignore_eos" not in free["body"]
        and free["body"]["max_tokens"] == 16
    )
    assert fixed["authorization"] == "Bearer secret-key"


def test_the_key_is_in_no_file(server: ScriptedServer, tmp_path: Path) -> None:
    measure(job(server.base_url, plan(3), tmp_path), quiet)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files and not any(b"secret-key" in path.read_bytes() for path in files)


@pytest.mark.parametrize("framing", ["chunked", "close"])
@pytest.mark.parametrize("token_ids", [False, True])
def test_chat_with_a_role_first(
    server: ScriptedServer, tmp_path: Path, framing: str, token_ids: bool
) -> None:
    server.play(Script(role_first=True, framing=framing, token_ids=token_ids, finish="separate", ttft_ms=20))
    measured = measure(job(server.base_url, plan(8), tmp_path, api="chat"), quiet)
    assert measured.requests["ok"].all() and (measured.requests["events"] == 5).all()
    assert (measured.requests["finish_reason"] == "stop").all()
    assert (measured.events["estimated"] != token_ids).all()
    sent = {int(entry["key"]): entry for entry in server.record()}
    rows = measured.requests.set_index("index")
    assert all(
        rows.loc[index, "first_ns"] >= entry["sends"][0] for index, entry in sent.items()
    )  # not the role


@pytest.mark.parametrize("usage", ["last", "every", "none"])
def test_several_tokens_in_an_event(server: ScriptedServer, tmp_path: Path, usage: str) -> None:
    server.play(Script(per_event=4, usage=usage))
    measured = measure(job(server.base_url, plan(4, tokens=10), tmp_path), quiet)
    assert (measured.requests["output_tokens"] == 10).all() and (measured.requests["events"] == 3).all()
    assert set(measured.requests["output_tokens_source"]) == {"tokenizer" if usage == "none" else "usage"}
    for _, events in measured.events.groupby("index"):
        assert list(events["tokens"]) == [4, 4, 2]
        assert (events["estimated"] != (usage == "every")).all()


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content", "tool"])
def test_other_generated_text_counts(server: ScriptedServer, tmp_path: Path, field: str) -> None:
    server.play(Script(field=field))
    measured = measure(job(server.base_url, plan(2), tmp_path, api="chat"), quiet)
    assert measured.requests["ok"].all() and (measured.requests["events"] == 5).all()


def test_turns_follow_each_other_and_think(server: ScriptedServer, tmp_path: Path) -> None:
    measured = measure(
        job(server.base_url, plan(12, turns=3, think_s=0.03), tmp_path, load(concurrency=2)), quiet
    )
    assert measured.requests["ok"].all() and len(measured.requests) == 12
    for _, session in measured.requests.groupby("session"):
        turns = session.sort_values("turn")
        gaps = list(turns["scheduled_ns"])[1:], list(turns["end_ns"])[:-1]
        assert [due - ended for due, ended in zip(*gaps, strict=True)] == [30_000_000, 30_000_000]
    in_order(measured)


def test_a_closed_loop_never_has_more_sessions_than_slots(server: ScriptedServer, tmp_path: Path) -> None:
    measured = measure(job(server.base_url, plan(30), tmp_path, load(concurrency=3)), quiet)
    assert most_at_once(measured.requests["scheduled_ns"], measured.requests["end_ns"]) == 3
    ends = set(measured.requests["end_ns"])
    started = sorted(measured.requests["scheduled_ns"])
    assert all(due in ends for due in started[3:])  # due exactly when a slot became free
    assert measured.client["connections_opened"] == 3


def most_at_once(starts: "pandas.Series[int]", ends: "pandas.Series[int]") -> int:
    moments = sorted([(int(end), -1) for end in ends] + [(int(start), 1) for start in starts])
    now = most = 0
    for _, step in moments:
        now += step
        most = max(most, now)
    return most


@pytest.mark.parametrize("name", ["constant", "poisson"])
def test_an_open_loop_keeps_its_schedule(server: ScriptedServer, tmp_path: Path, name: str) -> None:
    options = load(name=name, rate=200.0, concurrency=None)
    first = measure(job(server.base_url, plan(40), tmp_path / "a", options, seed=3), quiet)
    again = measure(job(server.base_url, plan(40), tmp_path / "b", options, seed=3), quiet)

    def offsets(measured: Measurement) -> list[int]:
        return list(measured.requests["scheduled_ns"] - measured.requests["scheduled_ns"].iloc[0])

    assert first.requests["ok"].all()
    assert offsets(first) == offsets(again)
    if name == "constant":
        assert offsets(first) == [number * 5_000_000 for number in range(40)]
    in_order(first)


def test_a_bound_on_concurrency_delays_sending_not_the_schedule(
    server: ScriptedServer, tmp_path: Path
) -> None:
    server.play(Script(ttft_ms=20))
    options = load(name="constant", rate=1000.0, concurrency=2)
    measured = measure(job(server.base_url, plan(20), tmp_path, options), quiet)
    rows = measured.requests
    assert list(rows["scheduled_ns"] - rows["scheduled_ns"].iloc[0]) == [
        number * 1_000_000 for number in range(20)
    ]
    assert most_at_once(rows["sent_ns"], rows["end_ns"]) == 2
    assert rows["sent_ns"].is_monotonic_increasing  # first due, first sent


def test_bounds_by_count_and_time(server: ScriptedServer, tmp_path: Path) -> None:
    measured = measure(job(server.base_url, plan(30), tmp_path / "count", load(requests=7)), quiet)
    assert list(measured.requests["index"]) == list(range(7))
    warm = measure(job(server.base_url, plan(9), tmp_path / "warm", load(requests=2), phase="warmup"), quiet)
    assert len(warm.requests) == 9 and set(warm.requests["phase"]) == {"warmup"}
    server.play(Script(ttft_ms=30))
    for name in ("constant", "poisson"):
        options = load(name=name, rate=100.0, concurrency=None, duration_s=0.2)
        timed = measure(job(server.base_url, plan(500), tmp_path / name, options), quiet)
        assert timed.window_end_ns - timed.window_start_ns == 200_000_000
        assert (timed.requests["scheduled_ns"] <= timed.window_end_ns).all()
        assert timed.requests["ok"].all() and not timed.stopped_early  # those in flight drained
        if name == "constant":
            assert len(timed.requests) == 20


def test_what_has_not_drained_is_an_error(server: ScriptedServer, tmp_path: Path) -> None:
    server.play(Script(stall_after=2))
    measured = measure(job(server.base_url, plan(4), tmp_path, load(duration_s=0.2, drain_s=0.1)), quiet)
    assert set(measured.requests["error"]) == {"timeout_drain"} and len(measured.requests) == 4


def test_many_connections(tmp_path: Path) -> None:
    with scripted_server("--ttft-ms", "300") as server:
        measured = measure(job(server.base_url, plan(600, tokens=2), tmp_path, load(concurrency=300)), quiet)
        assert measured.requests["ok"].all() and measured.client["connections_ready"] == 300
        assert measured.client["connections_opened"] == 300  # kept alive, no more than needed
        assert most_at_once(measured.requests["sent_ns"], measured.requests["end_ns"]) == 300


def test_progress_tells_how_far_it_is(server: ScriptedServer, tmp_path: Path) -> None:
    seen: list[Progress] = []
    measure(job(server.base_url, plan(60, tokens=10), tmp_path), seen.append)
    last = seen[-1]
    assert (last.state, last.total, last.sent, last.finished, last.errors, last.in_flight) == (
        "done",
        60,
        60,
        60,
        0,
        0,
    )
    assert last.chunks >= 60
    assert [progress.sent for progress in seen] == sorted(progress.sent for progress in seen)
    assert all(progress.in_flight <= 4 for progress in seen)


def test_the_client_stays_on_its_cores(server: ScriptedServer, tmp_path: Path) -> None:
    core = max(os.sched_getaffinity(0))
    measured = measure(job(server.base_url, plan(2), tmp_path, cpus=(core,)), quiet)
    assert measured.client["cpus"] == [core]


def test_the_measuring_process_imports_little() -> None:
    import subprocess
    import sys

    code = "import harness.client.__main__, sys; print(' '.join(sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    heavy = {"hydra", "omegaconf", "pandas", "numpy", "matplotlib", "tokenizers", "rich", "jinja2", "aiohttp"}
    assert not heavy & set(loaded)
