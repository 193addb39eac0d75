"""Every kind of load through the real client: what was scheduled when, from the schedule itself."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from harness.client import measure
from harness.load.arrivals import arrival_process
from harness.load.options import GammaOptions, LoadOptions, RampOptions, StepsOptions, TraceOptions
from tests.support.client_jobs import job, load, plan, quiet
from tests.support.command_line import records, run
from tests.support.fixtures import ScriptedServer
from tests.support.scripts import Script


def options(kind: type[LoadOptions], name: str, **more: Any) -> LoadOptions:
    base = {**vars(load()), "name": name, "concurrency": None}
    del base["ramp_s"]
    return kind(**{**base, **more})


LOADS = [
    options(GammaOptions, "gamma", rate=100.0, cv=2.0),
    options(RampOptions, "ramp", rate=50.0, rate_end=200.0, ramp_s=20.0, arrivals="poisson"),
    options(StepsOptions, "steps", stages=["50x0.05", "200x20"], arrivals="even"),
]


@pytest.mark.parametrize("chosen", LOADS, ids=lambda chosen: chosen.name)
def test_sessions_keep_their_schedule_and_turns_follow_answers(
    server: ScriptedServer, tmp_path: Path, chosen: LoadOptions
) -> None:
    server.play(Script(ttft_ms=5, itl_ms=1))
    rows = measure(
        job(server.base_url, plan(24, turns=3, think_s=0.01), tmp_path, chosen, seed=4), quiet
    ).requests
    assert rows["ok"].all() and len(rows) == 24
    process = arrival_process(**chosen.arrival(4, ()))
    first = rows[rows["turn"] == 0].sort_values("session")
    expected = [round((process.wait(0.0, n, 0) or 0.0) * 1e9) for n in range(8)]
    offsets = first["scheduled_ns"] - first["scheduled_ns"].min()
    assert list(offsets) == [instant - expected[0] for instant in expected]
    for _, session in rows.groupby("session"):
        turns = session.sort_values("turn")
        pauses = turns["scheduled_ns"].to_numpy()[1:] - turns["end_ns"].to_numpy()[:-1]
        assert all(pauses == 10_000_000)


def test_later_turns_keep_to_recorded_instants_or_follow_a_late_answer(
    server: ScriptedServer, tmp_path: Path
) -> None:
    """Two sessions of three turns, replayed twice as fast; the answer to the first turn of one comes too late."""
    server.play(Script(ttft_ms=5, itl_ms=1), by_key={"1": Script(ttft_ms=400, itl_ms=1)})
    instants = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    requests = [
        replace(request, session=number % 2, turn=number // 2, think_time_s=9.0, arrival_s=instant)
        for number, (request, instant) in enumerate(zip(plan(6), instants, strict=True))
    ]
    chosen = options(TraceOptions, "trace", time_scale=0.5)
    rows = measure(job(server.base_url, requests, tmp_path, chosen), quiet).requests.set_index("index")
    assert rows["ok"].all() and len(rows) == 6
    start_ns = rows["scheduled_ns"][0]
    offsets = (rows["scheduled_ns"] - start_ns) / 1e6
    assert offsets[[0, 2, 4, 1]].tolist() == [0, 200, 400, 100]
    assert rows["scheduled_ns"][3] == rows["end_ns"][1] > start_ns + 300_000_000
    assert rows["scheduled_ns"][5] == max(rows["end_ns"][3], start_ns + 500_000_000)


def test_the_slots_of_a_closed_loop_open_one_after_another(server: ScriptedServer, tmp_path: Path) -> None:
    server.play(Script(ttft_ms=400, itl_ms=1))
    rows = measure(
        job(server.base_url, plan(8), tmp_path, load(concurrency=4, ramp_s=0.2)), quiet
    ).requests.sort_values("scheduled_ns")
    assert rows["ok"].all()
    offsets = (rows["scheduled_ns"] - rows["scheduled_ns"].min()).tolist()
    assert offsets[:4] == [0, 50_000_000, 100_000_000, 150_000_000]
    assert set(rows["scheduled_ns"][4:]) <= set(rows["end_ns"])  # from then on a slot at a time becomes free


def test_a_trace_is_replayed_by_a_command(server: ScriptedServer, tmp_path: Path) -> None:
    server.play(Script(ttft_ms=5, itl_ms=1))
    rows = [
        {"timestamp": ms, "input_length": 600, "output_length": 4, "hash_ids": [0, block]}
        for block, ms in enumerate([0, 100, 100, 700, 90_000], 1)
    ]
    (tmp_path / "trace.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    overrides = ["backend=endpoint", f"backend.base_url={server.base_url}", "load.warmup=1"]
    chosen = ["workload=trace", "workload.path=trace.jsonl", "load=trace", "load.time_scale=0.5"]
    done = run(["harness", *overrides, *chosen, "load.requests=4"], tmp_path)
    assert done.status == 0, done.err
    (record,) = records(tmp_path / "results")
    requests = pd.read_parquet(tmp_path / "results" / "runs" / record["id"] / "requests.parquet")
    measured = requests[requests["phase"] == "measured"].sort_values("index")
    offsets = measured["scheduled_ns"] - measured["scheduled_ns"].min()
    assert list(offsets) == [0, 50_000_000, 50_000_000, 350_000_000]
    assert list(measured["prompt_tokens"]) == [600] * 4
    assert record["fingerprint"]["sources"]["trace_requests"] == 5
    refused = run(["harness", *overrides, "load=trace"], tmp_path)
    assert refused.status == 2 and "workload=trace" in refused.err


def test_a_rate_that_cannot_be_held_is_told_and_the_drain_is_bounded(
    server: ScriptedServer, tmp_path: Path
) -> None:
    """20 are due within a second, one at a time may be in flight, and each takes 400 ms."""
    server.play(Script(ttft_ms=400, itl_ms=1))
    chosen = ["load=constant", "load.rate=20", "load.concurrency=1", "load.duration_s=1", "load.drain_s=0.5"]
    small = ["workload.turns=1", "workload.output_tokens=2", "workload.prompt_tokens=160", "load.warmup=0"]
    done = run(
        ["harness", "backend=endpoint", f"backend.base_url={server.base_url}", *chosen, *small], tmp_path
    )
    assert done.status == 0, done.err
    (record,) = records(tmp_path / "results")
    assert record["window"]["bounded_by"] == "time"
    counted = record["summary"]["requests"]
    assert 1 <= counted["ok"] <= 3
    assert counted["ok"] + counted["errors"]["timeout_drain"] == 20
    (check,) = [check for check in record["validity"] if check["check"] == "achieved_rate"]
    assert check["ok"] is False and check["value"] < 0.3
    assert "of the offered rate" in done.err
    assert "will end by count" not in done.err


def test_both_bounds_end_a_run_by_whichever_comes_first(server: ScriptedServer, tmp_path: Path) -> None:
    server.play(Script(ttft_ms=5, itl_ms=1))
    by_count = load(name="constant", rate=100.0, concurrency=None, requests=5, duration_s=60.0)
    measured = measure(job(server.base_url, plan(20), tmp_path / "count", by_count), quiet)
    assert len(measured.requests) == 5 and measured.requests["ok"].all()
    by_time = load(name="constant", rate=100.0, concurrency=None, requests=15, duration_s=0.095)
    measured = measure(job(server.base_url, plan(20), tmp_path / "time", by_time), quiet)
    assert len(measured.requests) == 10 and measured.requests["ok"].all()
