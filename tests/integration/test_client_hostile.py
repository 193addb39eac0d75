"""Servers that never stop talking, and addresses of the other family: a clear error, and bounded memory."""

import time
from pathlib import Path

import pytest

from harness.client import measure
from harness.client.job import Measurement
from tests.support.client_jobs import job, load, plan, quiet
from tests.support.raw_server import Send, raw_server

STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
LAST = b'data: {"choices":[{"index":0,"text":" word","finish_reason":"stop"}]}\n\n'
TOKEN = b'data: {"choices":[{"index":0,"text":" word","finish_reason":null}]}\n\n'
MiB = 1 << 20


def endless_line(send: Send) -> None:
    send(STREAM + b"data: ")
    for _ in range(100):
        send(b"x" * MiB)


def endless_header(send: Send) -> None:
    send(b"HTTP/1.1 200 OK\r\nX-Padding: ")
    for _ in range(100):
        send(b"x" * MiB)


def endless_page(send: Send) -> None:
    send(b"HTTP/1.1 503 Busy\r\nContent-Type: text/html\r\n\r\n")
    for _ in range(100):
        send(b"x" * MiB)


def one(url: str, spool: Path, count: int = 2) -> Measurement:
    return measure(job(url, plan(count), spool, load(concurrency=1)), quiet)


def plain(send: Send) -> None:
    send(STREAM + LAST)


@pytest.fixture(scope="module")
def usual_memory(tmp_path_factory: pytest.TempPathFactory) -> int:
    """What the client holds at most when nothing is wrong."""
    with raw_server(plain) as url:
        measured = one(url, tmp_path_factory.mktemp("spool"))
    assert measured.requests["ok"].all()
    return int(measured.client["peak_memory_bytes"])


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        (endless_line, "oversized", "longer than 1 MiB"),
        (endless_header, "bad_response", "KiB came without a body"),
        (endless_page, "http_503", "xxxx"),
    ],
)
def test_a_hundred_megabytes_of_nothing(
    answer: object, error: str, words: str, usual_memory: int, tmp_path: Path
) -> None:
    with raw_server(answer) as url:  # type: ignore[arg-type]
        measured = one(url, tmp_path)
    assert list(measured.requests["error"]) == [error] * 2
    assert measured.requests["error_detail"].str.contains(words).all()
    assert measured.client["peak_memory_bytes"] - usual_memory < 16 * MiB
    assert (tmp_path / "measured.journal").stat().st_size < 8 * MiB


@pytest.mark.parametrize(("first", "error"), [(b"", "first_token"), (TOKEN * 2, "between_tokens")])
def test_comments_that_keep_a_connection_open_are_no_progress(
    tmp_path: Path, first: bytes, error: str
) -> None:
    def pings(send: Send) -> None:
        send(STREAM)
        if first:
            time.sleep(0.02)
            send(first)
            time.sleep(0.02)
        while True:
            send(b": ping\n\n")
            time.sleep(0.02)

    options = load(concurrency=1, first_token_timeout_s=0.4, token_timeout_s=0.3)
    with raw_server(pings) as url:
        rows = measure(job(url, plan(1), tmp_path, options), quiet).requests
    assert rows["error"][0] == f"timeout_{error}"


def test_the_other_family_of_addresses(tmp_path: Path) -> None:
    with raw_server(plain, host="::1") as url:
        assert "[::1]" in url
        assert one(url, tmp_path).requests["ok"].all()
