"""A request that crosses the server's close: sent again only where nobody can have read it."""

import asyncio
import socket
from pathlib import Path

import pytest

from harness.client.connection import Connection
from harness.client.exchange import Exchange
from harness.client.journal import Journal
from harness.client.receiver import Receiver
from harness.client.setup import Limits


class Fate:
    """Notes what a connection tells its owner."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def released(self, connection: Connection, reusable: bool) -> None:
        self.notes.append("released" if reusable else "released, closed")

    def completed(self, exchange: Exchange, ns: int) -> None:
        self.notes.append("completed")

    def failed(self, exchange: Exchange, kind: str, detail: str) -> None:
        self.notes.append(kind)

    def unprocessed(self, exchange: Exchange) -> None:
        self.notes.append("unprocessed")

    def lost(self, connection: Connection) -> None:
        self.notes.append("lost")


class Pair:
    """A connection and the server's end of it."""

    def __init__(
        self, fate: Fate, connection: Connection, server: socket.socket, journal: Journal, receiver: Receiver
    ) -> None:
        self.fate, self.connection, self.server, self.journal = fate, connection, server, journal
        self.receiver = receiver

    @classmethod
    async def open(cls, tmp_path: Path) -> "Pair":
        with socket.create_server(("127.0.0.1", 0)) as listening:
            sock = socket.create_connection(listening.getsockname())
            server, _ = listening.accept()
        sock.setblocking(False)
        fate, journal = Fate(), Journal(tmp_path / "journal")
        connection = Connection(fate, journal, memoryview(bytearray(4096)).cast("Q"), sock, False)
        receiver = Receiver(asyncio.get_running_loop())
        receiver.attach(sock, connection)
        return cls(fate, connection, server, journal, receiver)

    async def settle(self) -> list[str]:
        while not self.connection.closed:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0)
        self.receiver.close()
        self.server.close()
        self.journal.close()
        return self.fate.notes


def exchange() -> Exchange:
    return Exchange(0, 0, 0, 0, b"POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n", False)


async def test_sent_into_a_connection_closed_before(tmp_path: Path) -> None:
    pair = await Pair.open(tmp_path)
    pair.server.close()  # its end of file is on the way, the loop has not seen it
    assert not pair.connection.looks_alive()
    pair.connection.send(exchange())
    assert "unprocessed" in await pair.settle()


async def test_read_and_then_closed_is_an_error(tmp_path: Path) -> None:
    pair = await Pair.open(tmp_path)
    assert pair.connection.looks_alive()
    pair.connection.send(exchange())
    assert pair.server.recv(4096)
    pair.server.close()
    notes = await pair.settle()
    assert "disconnected" in notes and "unprocessed" not in notes


async def test_received_unread_and_then_closed_is_an_error_too(tmp_path: Path) -> None:
    """The server's machine had it; who knows what came of it."""
    pair = await Pair.open(tmp_path)
    pair.connection.send(exchange())
    while not pair.server.recv(1, socket.MSG_PEEK):
        await asyncio.sleep(0)
    pair.server.close()
    notes = await pair.settle()
    assert "disconnected" in notes and "unprocessed" not in notes


async def test_a_goodbye_on_an_idle_connection_closes_it(tmp_path: Path) -> None:
    pair = await Pair.open(tmp_path)
    pair.server.sendall(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")
    await asyncio.sleep(0)
    assert await pair.settle() == ["lost"]


@pytest.mark.parametrize(
    ("reply", "note"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab", "released"),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab", "released"),
        (
            b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
            "released",
        ),
        (b"HTTP/1.1 204 No Content\r\n\r\n", "released"),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nab", "released, closed"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nab", "released, closed"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nHTTP/1.1 200 OK\r\n", "released, closed"),
    ],
)
async def test_framing(tmp_path: Path, reply: bytes, note: str) -> None:
    pair = await Pair.open(tmp_path)
    pair.connection.send(exchange())
    pair.server.sendall(reply)
    while "completed" not in pair.fate.notes:
        await asyncio.sleep(0.001)
    assert pair.fate.notes[:2] == [note, "completed"]
    pair.connection.close()
    await pair.settle()
    await asyncio.sleep(0)


def test_patience() -> None:
    limits = Limits(
        connect_ns=1, first_token_ns=100, token_ns=10, request_ns=500, drain_ns=0, duration_ns=None, cap=None
    )
    waiting = exchange()
    waiting.sent_ns = 1000
    assert waiting.deadline_ns(limits) == 1100
    waiting.last_read_ns, waiting.reads = 1050, 1  # that may have been a role without a token
    assert waiting.deadline_ns(limits) == 1100
    waiting.last_read_ns = 1095
    assert waiting.deadline_ns(limits) == 1105
    waiting.last_read_ns, waiting.reads = 1050, 2
    assert waiting.deadline_ns(limits) == 1060
    waiting.last_read_ns = 1499
    assert waiting.deadline_ns(limits) == 1500


@pytest.mark.parametrize("closing", [False, True])
async def test_an_answer_before_the_request_was_taken_in(tmp_path: Path, closing: bool) -> None:
    """A server that refuses a body need not read it: its answer counts, and the connection is not used again."""
    pair = await Pair.open(tmp_path)
    body = b"x" * (32 << 20)
    request = b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body)
    pair.connection.send(Exchange(0, 0, 0, 0, request + body, False))
    while not pair.server.recv(len(request)):
        await asyncio.sleep(0)
    pair.server.sendall(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 2\r\n\r\nno")
    if closing:  # with the rest unread, which resets the connection
        pair.server.close()
    assert await pair.settle() == ["released, closed", "completed"]
