"""Every way in which a request can fail is an error of its own kind, and nothing else is."""

import json
import socket
import threading
from pathlib import Path

import pytest

from harness.client import Progress, measure
from harness.core.errors import UsageError
from tests.support.client_jobs import job, load, plan, quiet
from tests.support.fixtures import ScriptedServer, scripted_server
from tests.support.scripts import Script, piece

TOKEN = b'data: {"choices":[{"index":0,"text":" word","finish_reason":null}]}\n\n'
LAST = b'data: {"choices":[{"index":0,"text":" word","finish_reason":"stop"}]}\n\n'
DONE = b"data: [DONE]\n\n"


def raw(*parts: bytes, **more: object) -> Script:
    return Script(pieces=[piece(part) for part in parts], **more)  # type: ignore[arg-type]


CASES = {
    "http_401": Script(status=401, body='{"error": {"message": "bad key"}}', content_type="application/json"),
    "http_429": Script(status=429, body="slow down", content_type="text/plain", framing="length"),
    "http_500": Script(status=500, body="<h1>oops</h1>" * 20000, content_type="text/html"),
    "http_307": Script(status=307, location="http://elsewhere/v1", framing="length"),
    "stream_error": Script(error_after=2),
    "truncated": Script(cut_after=3),
    "disconnected": Script(vanish="unanswered"),
    "bad_content_type": Script(body='{"choices": []}', content_type="application/json"),
    "empty": raw(b": nothing\n\n", DONE),
    "bad_response": raw(b"5", framing="length", content_type="text/event-stream\r\nContent-Length: x"),
}
DETAILS = {
    "http_401": "bad key",
    "http_429": "slow down",
    "http_307": "redirected to http://elsewhere/v1",
    "stream_error": "scripted failure",
}


def test_each_failure_has_its_kind_and_spoils_no_other_request(
    server: ScriptedServer, tmp_path: Path
) -> None:
    kinds = dict(enumerate(CASES))
    server.play(by_key={number: CASES[kind] for number, kind in kinds.items()})
    measured = measure(job(server.base_url, plan(len(kinds) + 10), tmp_path), quiet)
    rows = measured.requests.set_index("index")
    found = {number: rows.loc[number, "error"] for number in kinds}
    assert found == kinds
    assert rows["ok"].sum() == 10 and rows.loc[len(kinds) :, "ok"].all()
    for number, kind in kinds.items():
        assert DETAILS.get(kind, "") in rows.loc[number, "error_detail"]
        assert len(rows.loc[number, "error_detail"]) <= 500
    by_kind = {kind: rows.loc[number] for number, kind in kinds.items()}
    assert by_kind["truncated"]["events"] == 3 and by_kind["stream_error"]["events"] == 2
    assert by_kind["http_401"]["http_status"] == 401


@pytest.mark.parametrize(
    ("script", "error"),
    [
        (raw(TOKEN, LAST, DONE), None),
        (raw(TOKEN, LAST), None),  # a finish reason is enough
        (raw(TOKEN, DONE), None),  # so is [DONE]
        (raw(TOKEN, TOKEN), "truncated"),
        (raw(TOKEN, TOKEN, framing="close"), "truncated"),
        (raw(LAST, framing="close"), None),
        (raw(b"\xef\xbb\xbf" + TOKEN + LAST + DONE, framing="length"), None),
        (raw(b"{}", content_type="application/json"), "bad_content_type"),
        (raw(TOKEN, content_type=""), "bad_content_type"),
        (raw(b'{"error": "no"}', content_type="application/json"), "stream_error"),
        (raw(b'data: {"choices":[{"index":0,"text":"","finish_reason":"abort"}]}\n\n'), "stream_error"),
        (raw(b"event: error\ndata: overloaded\n\n", DONE), "stream_error"),
    ],
)
def test_streams_at_the_edge(
    server: ScriptedServer, tmp_path: Path, script: Script, error: str | None
) -> None:
    server.play(script)
    rows = measure(job(server.base_url, plan(2), tmp_path), quiet).requests
    assert [None if ok else kind for ok, kind in zip(rows["ok"], rows["error"], strict=True)] == [
        error,
        error,
    ]


def test_a_stream_split_anywhere_reads_the_same(server: ScriptedServer, tmp_path: Path) -> None:
    text = "a ü 日本 🙂 word"
    record = {"choices": [{"index": 0, "text": text, "finish_reason": "stop"}]}
    body = b"data: " + json.dumps(record, ensure_ascii=False).encode() + b"\r\n\r\n" + DONE
    cuts = [raw(body[:at], body[at:]) for at in range(1, len(body))]
    server.play(by_key=dict(enumerate(cuts)))
    rows = measure(job(server.base_url, plan(len(cuts)), tmp_path, load(concurrency=16)), quiet).requests
    assert rows["ok"].all() and (rows["text"] == text).all() and (rows["events"] == 1).all()


def test_unexpected_events_are_counted_and_shown(server: ScriptedServer, tmp_path: Path) -> None:
    server.play(raw(b"data: hello\n\n", TOKEN, b'data: {"x": 1}\n\n', LAST, DONE))
    rows = measure(job(server.base_url, plan(1), tmp_path), quiet).requests
    assert rows["ok"].all() and rows["unexpected"][0] == 2 and rows["unexpected_sample"][0] == "hello"


@pytest.mark.parametrize(
    ("script", "limits", "error"),
    [
        (
            Script(headers_ms=3000),
            {"first_token_timeout_s": 0.2, "token_timeout_s": 0.1},
            "timeout_first_token",
        ),
        (
            Script(stall_after=0),
            {"first_token_timeout_s": 0.2, "token_timeout_s": 0.1},
            "timeout_first_token",
        ),
        (
            Script(stall_after=3),
            {"token_timeout_s": 0.2, "first_token_timeout_s": 0.4},
            "timeout_between_tokens",
        ),
        (Script(itl_ms=20, tokens=500), {"request_timeout_s": 0.3}, "timeout_request"),
    ],
)
def test_patience_ends(
    server: ScriptedServer, tmp_path: Path, script: Script, limits: dict[str, float], error: str
) -> None:
    server.play(by_key={0: script})
    rows = measure(job(server.base_url, plan(6), tmp_path, load(**limits)), quiet).requests
    assert rows["error"][0] == error and rows["ok"][1:].all()


def test_nobody_listens(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, not listening: connections are refused
        measured = measure(job(f"http://127.0.0.1:{taken.getsockname()[1]}", plan(5), tmp_path), quiet)
    assert list(measured.requests["error"]) == ["connect"] * 5
    assert measured.requests["sent_ns"].isna().all() and not measured.stopped_early


def test_nobody_accepts(tmp_path: Path) -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        crowd = [socket.socket() for _ in range(4)]
        for one in crowd:
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", port))
        measured = measure(
            job(f"http://127.0.0.1:{port}", plan(2), tmp_path, load(connect_timeout_s=0.3)), quiet
        )
        for one in crowd:
            one.close()
    assert list(measured.requests["error"]) == ["timeout_connect"] * 2


def test_a_server_killed_in_mid_run_breaks_exactly_the_requests_it_had_not_finished(tmp_path: Path) -> None:
    """25 answers are short; the 26th and later stream until the server is killed."""
    with scripted_server() as server:
        endless = Script(tokens=100_000, itl_ms=5)
        server.play(endless, by_key={number: Script() for number in range(25)})

        def watch(progress: Progress) -> None:
            if progress.finished == 25 and server.process.poll() is None:
                server.kill()

        measured = measure(job(server.base_url, plan(50), tmp_path), watch)
    rows = measured.requests
    assert list(rows["ok"]) == [True] * 25 + [False] * 25
    assert set(rows["error"][25:]) <= {"truncated", "disconnected", "connect"}
    assert (rows["error"] == "truncated").sum() == (rows["headers_ns"].notna() & ~rows["ok"]).sum() > 0


def test_a_server_that_announces_each_close_is_reconnected(server: ScriptedServer, tmp_path: Path) -> None:
    server.play(Script(announce_close=True))
    measured = measure(job(server.base_url, plan(40), tmp_path), quiet)
    assert measured.requests["ok"].all() and measured.client["connections_opened"] >= 40
    assert measured.client["reconnects"] == 0 and len(server.record()) == 40


def test_a_think_time_longer_than_the_server_keeps_connections(
    server: ScriptedServer, tmp_path: Path
) -> None:
    server.play(Script(vanish="after"))  # closed without a word once the answer is out
    measured = measure(job(server.base_url, plan(8, turns=2, think_s=0.1), tmp_path), quiet)
    assert measured.requests["ok"].all() and measured.client["connections_closed_idle"] >= 4
    assert len(server.record()) == 8


def test_a_server_that_speaks_no_http(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def babble() -> None:
            for _ in range(2):
                connection, _ = listening.accept()
                connection.recv(65536)
                connection.sendall(b"SSH-2.0-hello\r\n")
                connection.close()

        thread = threading.Thread(target=babble)
        thread.start()
        options = load(concurrency=1)
        rows = measure(
            job(f"http://127.0.0.1:{listening.getsockname()[1]}", plan(2), tmp_path, options), quiet
        ).requests
        thread.join()
    assert list(rows["error"]) == ["bad_response"] * 2


@pytest.mark.parametrize("url", ["ftp://x", "127.0.0.1:80", "http://", "http://h:99999"])
def test_an_impossible_url_is_a_usage_error(url: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"backend\.base_url"):
        measure(job(url, plan(1), tmp_path), quiet)


def test_impossible_cores_are_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cores"):
        measure(job("http://127.0.0.1:1", plan(1), tmp_path, cpus=(4096,)), quiet)


def test_a_key_that_the_server_repeats_is_hidden(server: ScriptedServer, tmp_path: Path) -> None:
    server.play(Script(status=401, body="Incorrect key secret-key given", content_type="text/plain"))
    rows = measure(job(server.base_url, plan(1), tmp_path), quiet).requests
    assert rows["error_detail"][0] == "Incorrect key (key) given"
