"""Whole commands against the scripted server: what is recorded, what is said, how it ends."""

import shutil
import signal
from pathlib import Path

import pandas as pd
import pytest

from harness.metrics.pace import Pace, drifted
from harness.records.schema import EVENT_COLUMNS, REQUEST_COLUMNS
from tests.support.command_line import leftovers, records, run, start
from tests.support.fixtures import ScriptedServer
from tests.support.scripts import Script

# Checks that a machine with other work may fail, whatever the harness does.
OF_THE_MACHINE = (
    *("schedule_lag", "client_cpu", "event_loop_lag", "client_capacity"),
    *("quiet_machine", "same_pace", "steady_state", "events_per_read"),
)
SMALL = [
    *("workload.requests=6", "workload.prompt_tokens=160", "workload.output_tokens=5", "load.warmup=1"),
    "hardware.drift_limit=null",  # what it finds is the machine's, and it takes a while
]


def command(server: ScriptedServer, *more: str) -> list[str]:
    """Without pauses between the turns of a chat, which no test here needs."""
    flags = [argument for argument in more if argument.startswith("-")]
    overrides = [argument for argument in more if not argument.startswith("-")]
    if not any(override.startswith(("workload=", "experiment=")) for override in overrides):
        overrides.append("workload.think_time_s=0")
    return ["harness", *flags, "backend=endpoint", f"backend.base_url={server.base_url}", *SMALL, *overrides]


def test_one_run_is_recorded_whole(server: ScriptedServer, tmp_path: Path):
    server.play(Script(ttft_ms=30, itl_ms=5))
    looked = "hardware.drift_limit=1.1"
    quality = ["quality=perplexity", "quality.perplexity.tokens=300", "quality.perplexity.window=100"]
    done = run(command(server, "workload=rag", "workload.prompt_tokens=700", looked, *quality), tmp_path)
    assert done.status == 0, done.err
    (record,) = records(tmp_path / "results")
    assert record["schema"] == 1
    assert record["id"][0].isalpha()
    assert record["status"] == "complete"
    assert record["config"]["workload"]["name"] == "rag"
    assert record["fingerprint"]["plan_sha256"]
    summary = record["summary"]
    assert summary["requests"] == {"ok": 6, "errors": {}, "retried": 0}
    for metric in ("ttft_ms", "ttft_from_send_ms", "tpot_ms", "itl_ms", "e2e_ms"):
        assert {"mean", "p50", "p90", "p95", "p99"} <= set(summary[metric])
    # The scripted server's known schedule: never earlier than it sent.
    assert summary["ttft_from_send_ms"]["p50"] >= 30
    assert summary["tpot_ms"]["p50"] > 0
    assert summary["ttft_ms"]["p99"] is None  # six requests show no p99
    # It answers log p = -1 for every token, so the perplexity is e.
    assert summary["quality"]["perplexity"] == pytest.approx(2.718281828, rel=1e-6)
    before, after = (Pace(**record["pace"][name]) for name in ("before", "after"))
    assert before.ns < record["window"]["start_ns"] < record["window"]["end_ns"] < after.ns
    (pace,) = (check for check in record["validity"] if check["check"] == "same_pace")
    assert (pace["value"], pace["limit"]) == (pytest.approx(drifted(before, after)), 1.1)
    failed = {check["check"] for check in record["validity"] if check["ok"] is False}
    assert failed <= {"enough_requests", *OF_THE_MACHINE}
    folder = tmp_path / "results" / "runs" / record["id"]
    requests = pd.read_parquet(folder / "requests.parquet")
    assert list(requests["phase"]) == ["warmup"] + ["measured"] * 6
    assert set(REQUEST_COLUMNS) <= set(requests.columns)
    assert list(requests["output_tokens"]) == [5] * 7
    events = pd.read_parquet(folder / "events.parquet")
    assert set(EVENT_COLUMNS) <= set(events.columns)
    assert events["tokens"].sum() == 35
    assert leftovers(tmp_path / "results") == []
    # Table, sentence and the report's path last, on standard output; progress on standard error.
    report = tmp_path / done.last_line
    assert report.is_file()
    assert record["id"] in report.read_text()
    assert "Measuring" in done.err
    assert "Measuring" not in done.out


def test_an_experiment_brings_its_own_sweep(server: ScriptedServer, tmp_path: Path):
    done = run(command(server, "experiment=default", "quality=none", "workload.prompt_tokens=800"), tmp_path)
    assert done.status == 0, done.err
    found = records(tmp_path / "results")
    assert [record["config"]["workload"]["name"] for record in found] == ["chat", "rag", "summarization"]


def test_repeats_of_a_sweep_are_interleaved_and_measure_the_same_plans_again(
    server: ScriptedServer, tmp_path: Path
):
    done = run(command(server, "-m", "seed=1,2", "repeats=2", "workload.requests=2"), tmp_path)
    assert done.status == 0, done.err
    found = records(tmp_path / "results")
    assert [record["config"]["seed"] for record in found] == [1, 2, 1, 2]
    plans = [record["fingerprint"]["plan_sha256"] for record in found]
    assert plans[:2] == plans[2:] and plans[0] != plans[1]


def test_a_job_that_cannot_start_has_its_row_and_is_tried_once(server: ScriptedServer, tmp_path: Path):
    lengths = ["workload=rag", "workload.prompt_tokens=9000,700", "backend.context_length=4096"]
    done = run(command(server, "-m", "repeats=2", *lengths), tmp_path)
    assert done.status == 1
    found = records(tmp_path / "results")
    assert [record["status"] for record in found] == ["failed", "complete", "complete"]
    assert "backend.context_length" in found[0]["reason"]


def test_a_sweep_tells_first_what_cannot_run(server: ScriptedServer, tmp_path: Path):
    done = run(command(server, "-m", "backend.api=completions,chatt", "workload.requests=2"), tmp_path)
    assert done.status == 1
    assert [record["status"] for record in records(tmp_path / "results")] == ["complete", "failed"]
    told = done.err.index("backend.api=chatt")
    assert told < done.err.index("Measuring")
    assert "the others go on" in done.err


def test_a_failing_middle_job_does_not_stop_the_sweep(server: ScriptedServer, tmp_path: Path):
    urls = f"backend.base_url={server.base_url},http://127.0.0.1:1,{server.base_url}/v1"
    done = run(["harness", "-m", "backend=endpoint", urls, *SMALL, "workload.think_time_s=0"], tmp_path)
    assert done.status == 1
    found = records(tmp_path / "results")
    assert [record["status"] for record in found] == ["complete", "failed", "complete"]
    assert "http://127.0.0.1:1" in found[1]["reason"]
    assert "Traceback" not in done.err
    report = (tmp_path / done.last_line).read_text()
    assert all(record["id"] in report for record in found)


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_keeps_what_was_measured(
    server: ScriptedServer, tmp_path: Path, sent: signal.Signals
):
    quick, slow = Script(ttft_ms=5, itl_ms=1), Script(ttft_ms=10, itl_ms=3000)
    # First job: one warm-up, six requests. Second: its warm-up, two requests, then it hangs.
    server.play(slow, in_order=[quick] * 10)
    process = start(command(server, "-m", "seed=1,2,3", "load.concurrency=2", "workload.turns=1"), tmp_path)
    measuring = 0
    assert process.stderr is not None
    for line in process.stderr:
        measuring += line.strip() == "Measuring …"
        if measuring == 2:
            break
    # The second job's first requests are answered at once; then the two in flight wait for seconds.
    while sum(len(seen["sends"]) >= 5 for seen in server.record()) < 10:
        pass
    process.send_signal(sent)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    found = records(tmp_path / "results")
    assert [record["status"] for record in found] == ["complete", "partial"]
    counted = found[1]["summary"]["requests"]
    assert counted["ok"] == 2
    assert counted["errors"] == {"aborted": 2}
    assert "1 more run was not started" in err
    assert (tmp_path / out.strip().splitlines()[-1]).is_file()
    assert leftovers(tmp_path / "results") == []


def test_an_interruption_of_the_warm_up_ends_the_run(server: ScriptedServer, tmp_path: Path):
    # The readiness question is answered at once, the warm-up request takes its time.
    server.play(Script(ttft_ms=5, itl_ms=3000), in_order=[Script()])
    process = start(command(server, "-m", "seed=1,2"), tmp_path)
    while len(server.record()) < 2 or len(server.record()[1]["sends"]) < 2:
        assert process.poll() is None
    for _ in range(3):  # people press it more than once
        process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    (record,) = records(tmp_path / "results")
    assert (record["status"], record["reason"]) == ("failed", "interrupted")
    assert "Measuring" not in err
    assert "before anything was measured. 1 more run was not started" in err
    requests = pd.read_parquet(tmp_path / "results" / "runs" / record["id"] / "requests.parquet")
    assert list(requests["phase"]) == ["warmup"] and list(requests["error"]) == ["aborted"]
    assert leftovers(tmp_path / "results") == []


def test_a_warm_up_where_nothing_succeeds_ends_the_run(server: ScriptedServer, tmp_path: Path):
    broken = Script(status=500, body="no memory left", content_type="text/plain")
    server.play(broken, in_order=[Script()])
    done = run(command(server), tmp_path)
    assert done.status == 1
    assert "Every warm-up request failed" in done.err and "no memory left" in done.err
    (record,) = records(tmp_path / "results")
    assert record["status"] == "failed"
    assert done.out == ""  # no table, no sentence and no report of nothing
    assert record["id"] in done.err


def test_a_server_where_nothing_succeeds_is_a_failed_run(server: ScriptedServer, tmp_path: Path):
    broken = Script(error_after=2)
    server.play(broken, in_order=[Script()] * 2)
    done = run(command(server), tmp_path)
    assert done.status == 1
    (record,) = records(tmp_path / "results")
    assert record["status"] == "failed"
    assert record["summary"]["requests"] == {"ok": 0, "errors": {"stream_error": 6}, "retried": 0}
    assert "stream_error" in record["reason"]


def test_a_reader_that_goes_away_does_not_end_the_run(server: ScriptedServer, tmp_path: Path):
    process = start(command(server), tmp_path)
    assert process.stderr is not None and process.stdout is not None
    process.stderr.readline()  # as `head -1` would
    process.stderr.close()
    process.stdout.close()
    assert process.wait(120) == 0
    (record,) = records(tmp_path / "results")
    assert record["status"] == "complete"


def test_a_report_is_made_again_from_records(server: ScriptedServer, tmp_path: Path):
    first = run(command(server), tmp_path)
    assert first.status == 0, first.err
    (record,) = records(tmp_path / "results")
    again = run(["harness.report", f"runs=[{record['id']}]"], tmp_path)
    assert again.status == 0, again.err
    assert record["id"] in (tmp_path / again.last_line).read_text()
    none = run(["harness.report", "runs=[nothing-like-it]"], tmp_path)
    assert none.status == 2
    assert record["id"] in none.err


def test_a_saved_plan_is_replayed_to_the_same_hash(server: ScriptedServer, tmp_path: Path):
    saved = run(
        command(server, "workload=rag", "workload.prompt_tokens=700", "workload.save=plan.jsonl"), tmp_path
    )
    assert saved.status == 0, saved.err
    overrides = ["backend=endpoint", f"backend.base_url={server.base_url}", "load.warmup=1"]
    replayed = run(["harness", *overrides, "workload=file", "workload.path=plan.jsonl"], tmp_path)
    assert replayed.status == 0, replayed.err
    first, second = records(tmp_path / "results")
    assert first["fingerprint"]["plan_sha256"] == second["fingerprint"]["plan_sha256"]


def test_a_sweep_runs_each_value_once_and_goes_on_where_it_was_stopped(
    server: ScriptedServer, tmp_path: Path
):
    sweep = command(server, "-m", "seed=1,2")
    done = run(sweep, tmp_path)
    assert done.status == 0, done.err
    first, second = records(tmp_path / "results")
    assert (first["config"]["seed"], second["config"]["seed"]) == (1, 2)
    assert first["fingerprint"]["plan_sha256"] != second["fingerprint"]["plan_sha256"]
    assert {record["config"]["workload"]["name"] for record in (first, second)} == {"chat"}
    assert first["sweep"] == second["sweep"]
    shutil.rmtree(tmp_path / "results" / "runs" / second["id"])
    server.play()
    again = run([*sweep, "resume=latest"], tmp_path)
    assert again.status == 0, again.err
    assert f"Going on with {first['sweep']}: 1 of its runs are complete" in again.out + again.err
    kept, made = records(tmp_path / "results")
    assert kept == first
    assert made["config"] == second["config"] and made["sweep"] == first["sweep"]
    page = (tmp_path / again.last_line).read_text()
    assert kept["id"] in page and made["id"] in page
    unknown = run([*sweep, "resume=s19700101-000000"], tmp_path)
    assert unknown.status == 2 and "There is no run of s19700101-000000" in unknown.err
    other = run([*command(server, "seed=7"), "resume=latest"], tmp_path)
    assert other.status == 2 and f"None of these runs belongs to {first['sweep']}" in other.err
    assert len(records(tmp_path / "results")) == 2
