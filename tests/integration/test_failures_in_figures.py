"""What failed stands in the figures as what it is: a miss, never a fast request."""

from pathlib import Path

import pandas as pd
import pytest

from tests.support.command_line import records, run
from tests.support.fixtures import ScriptedServer
from tests.support.scripts import Script

OK = Script(ttft_ms=5, itl_ms=2)
SMALL = ["workload.requests=6", "workload.prompt_tokens=160", "workload.output_tokens=5", "load.warmup=1"]
SMALL += ["workload.think_time_s=0"]
BEFORE = [OK, OK]  # the question whether it is ready, and the warm-up


def measured(server: ScriptedServer, tmp_path: Path, *more: str) -> tuple[dict, pd.DataFrame]:  # type: ignore[type-arg]
    command = ["harness", "backend=endpoint", f"backend.base_url={server.base_url}", *SMALL]
    done = run([*command, "load.concurrency=1", "slo=interactive", *more], tmp_path)
    (record,) = records(tmp_path / "results")
    assert record["status"] == "complete", done.err
    rows = pd.read_parquet(tmp_path / "results" / "runs" / record["id"] / "requests.parquet")
    return record, rows[rows["phase"] == "measured"]


def test_timed_out_requests_are_misses(server: ScriptedServer, tmp_path: Path) -> None:
    server.play(OK, in_order=[*BEFORE, OK, Script(stall_after=0), Script(stall_after=2), OK])
    record, rows = measured(server, tmp_path, "load.first_token_timeout_s=1", "load.token_timeout_s=1")
    assert list(rows["ok"]) == [True, False, False, True, True, True]
    summary = record["summary"]
    counted = {"ok": 4, "errors": {"timeout_first_token": 1, "timeout_between_tokens": 1}, "retried": 0}
    assert summary["requests"] == counted
    assert summary["slo_attainment"] == pytest.approx(4 / 6)
    assert summary["goodput_per_s"] == pytest.approx(4 / record["window"]["seconds"])
    assert summary["requests_per_s"] == summary["goodput_per_s"]  # and not more for having given up
    assert record["window"]["seconds"] > 2  # the time they took is in it
    assert all(summary[name]["samples"] == 4 for name in ("ttft_ms", "tpot_ms", "e2e_ms"))
    assert {check["check"]: check["ok"] for check in record["validity"]}["no_errors"] is False


def test_a_request_sent_again_shows_in_the_record(server: ScriptedServer, tmp_path: Path) -> None:
    busy = Script(status=429, body="slow down", content_type="text/plain")
    server.play(OK, in_order=[*BEFORE, OK, busy, busy, OK])
    record, rows = measured(server, tmp_path, "load.retries=3", "load.retry_wait_s=0.3")
    assert rows["ok"].all() and list(rows["retries"]) == [0, 2, 0, 0, 0, 0]
    assert record["summary"]["requests"] == {"ok": 6, "errors": {}, "retried": 1}
    ttft_ms = (rows["first_ns"] - rows["scheduled_ns"]) / 1e6
    assert ttft_ms.iloc[1] > 600 and ttft_ms.max() == ttft_ms.iloc[1]
    assert {check["check"]: check["ok"] for check in record["validity"]}["no_retries"] is False
