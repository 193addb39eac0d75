"""Requests sent again: only where asked for, counted, and never faster for it."""

from pathlib import Path

import pytest

from harness.client import measure
from tests.support.client_jobs import job, load, plan, quiet
from tests.support.fixtures import ScriptedServer
from tests.support.scripts import Script

BUSY = Script(status=503, body="busy", content_type="text/plain")


def test_none_unless_asked_for(server: ScriptedServer, tmp_path: Path) -> None:
    server.play(in_order=[BUSY] * 3)
    rows = measure(job(server.base_url, plan(10), tmp_path), quiet).requests
    assert (~rows["ok"]).sum() == 3 and (rows["retries"] == 0).all() and len(server.record()) == 10


def test_a_request_that_is_sent_again_keeps_its_instants(server: ScriptedServer, tmp_path: Path) -> None:
    server.play(in_order=[BUSY, Script(vanish="unanswered"), BUSY])
    rows = measure(
        job(server.base_url, plan(6), tmp_path, load(concurrency=1, retries=3, retry_wait_s=0.05)), quiet
    ).requests
    assert rows["ok"].all() and list(rows["retries"]) == [3, 0, 0, 0, 0, 0]
    tries = [entry for entry in server.record() if entry["key"] == "0"]
    assert len(tries) == 4 and len(server.record()) == 9
    first = rows.iloc[0]
    assert first["sent_ns"] <= tries[0]["received_ns"] and first["headers_ns"] >= tries[3]["headers_ns"]
    assert first["first_ns"] - first["sent_ns"] >= 3 * 50_000_000  # its waits are in its TTFT
    assert rows["scheduled_ns"].is_monotonic_increasing and rows["scheduled_ns"][1] >= first["end_ns"]


def test_it_ends_with_the_last_error(server: ScriptedServer, tmp_path: Path) -> None:
    server.play(BUSY)
    rows = measure(job(server.base_url, plan(2), tmp_path, load(concurrency=1, retries=2)), quiet).requests
    assert list(rows["error"]) == ["http_503"] * 2 and list(rows["retries"]) == [2, 2]
    assert len(server.record()) == 6 and rows["error_detail"][0] == "busy"


@pytest.mark.parametrize(
    "script",
    [
        Script(status=401, body="no", content_type="text/plain"),
        Script(cut_after=2),
        Script(error_after=0),
        Script(stall_after=0),
    ],
)
def test_what_is_not_tried_again(server: ScriptedServer, tmp_path: Path, script: Script) -> None:
    """A refusal that stays one, a stream that began, an answer that took too long."""
    server.play(by_key={0: script})
    options = load(retries=5, first_token_timeout_s=0.2, token_timeout_s=0.2)
    rows = measure(job(server.base_url, plan(2), tmp_path, options), quiet).requests
    assert list(rows["ok"]) == [False, True] and rows["retries"][0] == 0


def test_all_tries_together_have_the_time_of_one_request(server: ScriptedServer, tmp_path: Path) -> None:
    server.play(by_key={0: BUSY})
    options = load(retries=10_000, retry_wait_s=0.02, request_timeout_s=0.5)
    rows = measure(job(server.base_url, plan(2), tmp_path, options), quiet).requests
    assert rows["error"][0] == "timeout_request" and 0 < rows["retries"][0] < 10_000 and rows["ok"][1]


def test_nobody_listens_yet(tmp_path: Path) -> None:
    options = load(retries=2, retry_wait_s=0.01)
    rows = measure(job("http://127.0.0.1:9", plan(3), tmp_path, options), quiet).requests
    assert list(rows["error"]) == ["connect"] * 3 and list(rows["retries"]) == [2] * 3
    assert rows["sent_ns"].isna().all()


def test_a_run_that_is_stopped_waits_for_no_retry(server: ScriptedServer, tmp_path: Path) -> None:
    server.play(BUSY)
    options = load(retries=10, retry_wait_s=3600)
    measured = measure(job(server.base_url, plan(4), tmp_path, options), quiet, lambda: not server.record())
    assert set(measured.requests["error"]) == {"aborted"} and measured.stopped_early


def test_patience_with_the_second_try_is_that_with_the_first(server: ScriptedServer, tmp_path: Path) -> None:
    """It is waited for past the end of the first one's patience, and nobody would look again before an hour."""
    server.play(in_order=[BUSY, Script(stall_after=0)])
    limits = {"first_token_timeout_s": 0.2, "token_timeout_s": 0.2, "connect_timeout_s": 3600}
    options = load(concurrency=1, retries=1, retry_wait_s=0.4, request_timeout_s=5, **limits)
    rows = measure(job(server.base_url, plan(1), tmp_path, options), quiet).requests
    assert list(rows["error"]) == ["timeout_first_token"] and rows["retries"][0] == 1
