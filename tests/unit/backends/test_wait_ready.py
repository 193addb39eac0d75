"""Readiness: a real answer, or one clear sentence and the engine's own last words."""

import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from backends.base import Endpoint, LaunchSpec
from backends.process import EngineProcess, free_port, wait_ready
from harness.core.errors import EndpointError, EngineError, UsageError
from tests.support.backends import endpoint
from tests.support.http_server import QuietHandler, served


@contextmanager
def answering(*statuses: int) -> Iterator[tuple[str, list[tuple[str, dict[str, Any], str | None]]]]:
    """A server that answers with these statuses in turn, the last one for ever; it keeps what it was asked."""
    seen: list[tuple[str, dict[str, Any], str | None]] = []
    left = list(statuses)

    class Handler(QuietHandler):
        def do_POST(self) -> None:
            body = orjson.loads(self.rfile.read(int(self.headers["Content-Length"])))
            seen.append((self.path, body, self.headers["Authorization"]))
            status = left.pop(0) if len(left) > 1 else left[0]
            answer = orjson.dumps({"error": {"message": f"because of {status}"}})
            self.send_response(status)
            if status == 302:
                self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

    with served(Handler) as address:
        yield address, seen


def _sleeping(tmp_path: Path) -> EngineProcess:
    return EngineProcess.start(
        LaunchSpec(("sh", "-c", "echo still loading; exec sleep 1000")), tmp_path / "log"
    )


def test_it_waits_until_a_completion_is_answered(tmp_path: Path) -> None:
    waits: list[float] = []
    with answering(503, 503, 200) as (url, seen), _sleeping(tmp_path) as process:
        wait_ready(Endpoint(url, "m"), endpoint(url), process, 30, waits.append)
    assert [path for path, _, _ in seen] == ["/v1/completions"] * 3
    assert seen[0][1] == {"model": "m", "prompt": "Hello", "max_tokens": 1, "temperature": 0}
    assert len(waits) == 2


def test_chat_servers_are_asked_in_their_own_way(tmp_path: Path) -> None:
    with answering(200) as (url, seen):
        wait_ready(Endpoint(url, "m", {"Authorization": "Bearer k"}), endpoint(url, api="chat"), None, 30)
    assert seen[0][0] == "/v1/chat/completions"
    assert seen[0][1]["messages"][0]["role"] == "user"
    assert seen[0][2] == "Bearer k"


def test_a_dying_engine_fails_at_once_with_its_last_words(tmp_path: Path) -> None:
    spec = LaunchSpec((sys.executable, "-c", "raise SystemExit('no such weights')"))
    url = f"http://127.0.0.1:{free_port()}"
    with (
        EngineProcess.start(spec, tmp_path / "log") as process,
        pytest.raises(EngineError, match=r"status 1(.|\n)*no such weights"),
    ):
        wait_ready(Endpoint(url, "m"), endpoint(url), process, 1e6)


def test_an_engine_that_never_answers_is_given_up_with_its_last_words(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with (
        _sleeping(tmp_path) as process,
        pytest.raises(EngineError, match=r"start_timeout_s=0\.3(.|\n)*still loading"),
    ):
        wait_ready(Endpoint(url, "m"), endpoint(url), process, 0.3)


def test_an_engine_that_refuses_is_not_asked_again(tmp_path: Path) -> None:
    with (
        answering(400) as (url, seen),
        _sleeping(tmp_path) as process,
        pytest.raises(EngineError, match="because of 400"),
    ):
        wait_ready(Endpoint(url, "m"), endpoint(url), process, 30)
    assert len(seen) == 1


@pytest.mark.parametrize(
    ("status", "cure"), [(401, "api_key_env"), (404, r"backend\.model_name=m"), (302, "302"), (500, "500")]
)
def test_a_foreign_server_that_refuses_is_an_error_with_a_cure(status: int, cure: str) -> None:
    with answering(status) as (url, seen), pytest.raises(EndpointError, match=cure):
        wait_ready(Endpoint(url, "m", {"Authorization": "Bearer s3cret"}), endpoint(url), None, 30)
    assert len(seen) == 1


def test_a_foreign_server_that_is_not_there_fails_at_once() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(EndpointError, match=r"No server answers(.|\n)*backend\.base_url"):
        wait_ready(Endpoint(url, "m"), endpoint(url), None, 1e6)


def test_a_port_in_use_is_a_usage_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=f"Port {port} cannot be used"):
            free_port(port)
    assert free_port(port) == port
