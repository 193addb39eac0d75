"""Answers as bytes, built from parts whose meaning is known, and a connection fed with them piece by piece.

Nothing here parses: what must come out is known because it was put in.
"""

import asyncio
import json
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic_ns
from typing import Any

from harness.client.connection import Connection
from harness.client.exchange import Exchange
from harness.client.exchanges import RawExchange, collect
from harness.client.journal import Journal, Kind, read_journal


@dataclass(frozen=True)
class Part:
    """Bytes of a body and what they mean. `at`: offset of the byte in `data` with which it is all there.

    text: what it generates. surprises: how many unexpected things it holds. finish, done, error: what it says.
    """

    data: bytes
    at: int
    text: str = ""
    surprises: int = 0
    finish: str | None = None
    done: bool = False
    error: str | None = None


def event(lines: Sequence[str], eol: str, **meaning: Any) -> Part:
    """An event of these lines: it is there with the first byte that ends its blank line."""
    data = "".join(line + eol for line in lines).encode()
    return Part(data + eol.encode(), len(data), **meaning)


def json_event(record: Any, eol: str = "\n", space: str = " ", broken: bool = False, **meaning: Any) -> Part:
    """A record as `data`; broken: over two lines, as the standard allows."""
    text = json.dumps(record, ensure_ascii=False)
    if broken and ", " in text:
        first, rest = text.split(", ", 1)
        return event([f"data:{space}{first},", f"data:{space}{rest}"], eol, **meaning)
    return event([f"data:{space}{text}"], eol, **meaning)


@dataclass
class Wire:
    """A whole answer. ends: for each part, the offset on the wire of the byte that completes it."""

    data: bytes
    head_ends: int
    ends: list[int] = field(default_factory=list)
    framed: bool = True


def put_on_wire(
    parts: Sequence[Part],
    framing: str,
    chunks: Sequence[int] = (),
    before: bytes = b"",
    extension: str = "",
    trailer: bytes = b"",
) -> Wire:
    """The answer over HTTP. chunks: sizes to use in turn; before: interim answers; trailer: after the last chunk."""
    body = b"".join(part.data for part in parts)
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
    head += {
        "chunked": b"Transfer-Encoding: chunked\r\n",
        "length": b"Content-Length: %d\r\n" % len(body),
        "close": b"Connection: close\r\n",
    }[framing]
    data = before + head + b"\r\n"
    wire = Wire(data, len(data), framed=framing != "close")
    offset_of: list[int] = []  # of each body byte on the wire
    if framing == "chunked":
        at, turn = 0, 0
        while at < len(body):
            size = chunks[turn % len(chunks)] if chunks else len(body)
            piece = body[at : at + size]
            data += b"%x%b\r\n" % (len(piece), extension.encode())
            offset_of += range(len(data), len(data) + len(piece))
            data += piece + b"\r\n"
            at, turn = at + len(piece), turn + 1
        data += b"0\r\n" + trailer + b"\r\n"
    else:
        offset_of = list(range(len(data), len(data) + len(body)))
        data += body
    start = 0
    for part in parts:
        wire.ends.append(offset_of[start + part.at])
        start += len(part.data)
    wire.data = data
    return wire


class _Transport(asyncio.Transport):
    """The write side of a connection that nobody reads."""

    def write(self, data: Any) -> None: ...

    def abort(self) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0


class Owner:
    """Notes how the exchange ended, as the pool and the driver do."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.notes: list[str] = []

    def released(self, connection: Connection, reusable: bool) -> None:
        self.notes.append("reusable" if reusable else "closed")

    def completed(self, exchange: Exchange, ns: int) -> None:
        self.notes.append("completed")

    def failed(self, exchange: Exchange, kind: str, detail: str) -> None:
        self.notes.append(kind)
        self.journal.add(Kind.ERROR, exchange.request, monotonic_ns(), f"{kind}\n{detail}".encode())

    def unprocessed(self, exchange: Exchange) -> None:
        self.notes.append("unprocessed")

    def lost(self, connection: Connection) -> None:
        self.notes.append("lost")


@dataclass
class Received:
    """What the client made of it. calls: (before, after) of each piece, in ns."""

    raw: RawExchange
    notes: list[str]
    calls: list[tuple[int, int]]


def receive(pieces: Sequence[bytes], eof: bool = False) -> Received:
    """Feed one answer to a connection in these reads; eof: the server closes behind them."""
    calls: list[tuple[int, int]] = []
    ours, theirs = socket.socketpair()
    with TemporaryDirectory() as folder, ours, theirs:
        ours.setblocking(False)
        journal = Journal(Path(folder) / "journal")
        owner = Owner(journal)
        connection = Connection(owner, journal, memoryview(bytearray(4096)).cast("Q"), ours, False)
        connection.connection_made(_Transport())
        journal.add(Kind.SCHEDULED, 0, monotonic_ns())
        connection.send(Exchange(0, 0, 0, 0, b"POST / HTTP/1.1\r\n\r\n", False))
        for piece in pieces:
            if connection.closed:
                break
            before = monotonic_ns()
            connection.data_received(piece)
            calls.append((before, monotonic_ns()))
        if eof and not connection.closed:
            connection.eof_received()
            connection.connection_lost(None)
        connection.close()
        journal.close()
        return Received(collect(read_journal(Path(folder) / "journal"))[0], owner.notes, calls)


def split(data: bytes, cuts: Sequence[int]) -> list[bytes]:
    """The data cut at these offsets (those beyond its end do not count)."""
    at = sorted({cut for cut in cuts if 0 < cut < len(data)})
    return [data[a:b] for a, b in zip([0, *at], [*at, len(data)], strict=True)]
