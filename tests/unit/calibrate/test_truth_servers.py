"""Both truth servers: the bytes they send, the schedule they keep, the log they leave."""

import json
import select
import shutil
import socket
from pathlib import Path

import pytest

from harness.calibrate.log import TrueLog, read_log
from harness.calibrate.server import Schedule, command_of, truth_server
from harness.calibrate.truth_server import Connection, TruthServer
from harness.core.errors import HarnessError

GOLDEN = 2654435769
LANGUAGES = [
    pytest.param(
        "c", marks=pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler here")
    ),
    "python",
]


def post(path: str, body: dict[str, object], name: str | None = None) -> bytes:
    data = json.dumps(body, separators=(",", ":")).encode()
    named = f"X-Request-Id: {name}\r\n" if name else ""
    return f"POST {path} HTTP/1.1\r\nHost: h\r\n{named}Content-Length: {len(data)}\r\n\r\n".encode() + data


def stream(path: str, tokens: int, name: str | None = None, **more: object) -> bytes:
    return post(path, {"prompt": [1, 2, 3], "stream": True, "max_tokens": tokens} | more, name)


# Requests of all kinds, pipelined on one connection: each is answered in turn.
TALK = (
    b"GET /v1/models HTTP/1.1\r\nHost: h\r\n\r\n",
    b"GET /health HTTP/1.1\r\nHost: h\r\n\r\n",
    post("/v1/completions", {"prompt": [1], "max_tokens": 1}),
    post("/v1/chat/completions", {"messages": [], "max_tokens": 1}),
    post("/elsewhere", {}),
    stream("/v1/completions", 3, "measured-0"),
    stream("/v1/chat/completions", 2, "measured-1"),
    stream("/v1/completions", 1),
    stream("/v1/completions", 9, "x" * 80, max_completion_tokens=2),
    post("/v1/completions", {"stream": True}, "default"),
)


def conversation(language: str, folder: Path, requests: bytes, ends_with: bytes) -> tuple[bytes, TrueLog]:
    with truth_server(Schedule(2000, 500, 300), folder, language=language) as server:
        port = int(server.base_url.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
            client.sendall(requests)
            got = b""
            while not got.endswith(ends_with):
                data = client.recv(1 << 16)
                assert data, got
                got += data
    return got, read_log(server.log)


@pytest.fixture(scope="module")
def talks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[bytes, TrueLog]]:
    ends_with = b'"total_tokens":17}}\n\n\r\nf\r\ndata: [DONE]\n\n\r\n0\r\n\r\n'.replace(b"f\r\n", b"e\r\n")
    talks = {}
    for language in ("c", "python"):
        if command_of(language) is not None:
            folder = tmp_path_factory.mktemp(language)
            talks[language] = conversation(language, folder, b"".join(TALK), ends_with)
    return talks


def test_both_send_the_same_bytes(talks: dict[str, tuple[bytes, TrueLog]]):
    if "c" not in talks:
        pytest.skip("there is no C compiler here")
    assert talks["c"][0] == talks["python"][0]


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_log_holds_every_stream_by_its_id(language: str, talks: dict[str, tuple[bytes, TrueLog]]):
    log = talks[language][1]
    named = [(one.id, one.asked, len(one.sends)) for one in log.requests]
    assert named == [
        ("measured-0", 3, 3),
        ("measured-1", 2, 2),
        ("", 1, 1),
        ("x" * 63, 2, 2),
        ("default", 16, 16),
    ]
    assert log.itl_ns == 500_000


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_schedule_is_as_asked_and_never_early(language: str, talks: dict[str, tuple[bytes, TrueLog]]):
    log = talks[language][1]
    for number, one in enumerate(log.requests):
        part_us = 300 * (number * GOLDEN % 2**32) >> 32
        assert one.due_ns - one.received_ns == (2000 + part_us) * 1000
    assert (log.lateness_ns() >= 0).all()
    assert all((one.sends[1:] > one.sends[:-1]).all() for one in log.requests)


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_the_wire_says(language: str, talks: dict[str, tuple[bytes, TrueLog]]):
    wire = talks[language][0]
    assert wire.count(b"HTTP/1.1 200 OK") == 9 and wire.count(b"HTTP/1.1 404 Not Found") == 1
    assert wire.count(b'"text":" word"') == 1 + 3 + 1 + 2 + 16
    assert wire.count(b'"delta":{"content":" word"}') == 2
    assert wire.count(b'"delta":{"role":"assistant","content":""}') == 1
    assert wire.count(b"data: [DONE]") == 5
    assert b'"usage":{"prompt_tokens":3,"completion_tokens":3,"total_tokens":6}' in wire


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_client_that_goes_away_leaves_the_others_alone(language: str, tmp_path: Path):
    with truth_server(Schedule(1000, 1000), tmp_path, language=language) as server:
        port = int(server.base_url.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), timeout=20) as stays:
            stays.sendall(stream("/v1/completions", 30, "stays"))
            with socket.create_connection(("127.0.0.1", port), timeout=20) as leaves:
                leaves.sendall(stream("/v1/completions", 100_000, "leaves"))
                assert leaves.recv(1)
            got = b""
            while not got.endswith(b"0\r\n\r\n"):
                got += stays.recv(1 << 16)
    seen = {one.id: len(one.sends) for one in read_log(server.log).requests}
    assert seen["stays"] == 30 and seen["leaves"] < 100_000


def test_a_server_that_cannot_start_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("harness.calibrate.server.command_of", lambda language: ["false"])
    with pytest.raises(HarnessError, match="did not start"), truth_server(Schedule(1, 1), tmp_path):
        pass


def test_python_takes_over_where_nothing_compiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("harness.core.compiling._COMPILERS", ("no-such-compiler",))
    with truth_server(Schedule(1000, 1000), tmp_path) as server:
        assert server.language == "python"


def test_a_socket_that_was_full_is_watched_for_room_no_longer_than_needed():
    """Else the server would spin on a socket that can always be written to."""
    ours, theirs = socket.socketpair()
    with ours, theirs, select.epoll() as poll:
        ours.setblocking(False)
        server = TruthServer.__new__(TruthServer)  # without its sockets and signals
        connection = Connection(ours)
        server._poll, server._held, server._connections = poll, 0, {ours.fileno(): connection}
        poll.register(ours, select.EPOLLIN)
        whole = bytes(8_000_000)
        server._put(connection, whole)
        assert connection.unsent and server._held == 1
        got = 0
        while got < len(whole):
            got += len(theirs.recv(1 << 20))
            for _, events in poll.poll(0):
                server._serve(connection, events)
        assert not connection.unsent and poll.poll(0) == []
