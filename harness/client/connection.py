"""One HTTP/1.1 connection: what arrives is stamped at once, and kept as bytes."""

import asyncio
import socket
from collections.abc import Callable
from time import monotonic_ns
from typing import Any, Protocol

import httptools

from harness.client.bounds import (
    LONGEST_LINE_BYTES,
    MOST_BODY_BYTES,
    MOST_HEAD_BYTES,
    ODD_BODY_BYTES,
    endless,
)
from harness.client.chunk_reader import StreamSlot
from harness.client.counters import CHUNKS
from harness.client.exchange import Exchange
from harness.client.journal import Journal, Kind
from harness.client.tcp_info import bytes_acked

_BODY = int(Kind.BODY)


class Owner(Protocol):
    """Who hears of a connection's fate."""

    def released(self, connection: "Connection", reusable: bool) -> None:
        """The response is complete; the connection is idle, or closed if not reusable."""

    def completed(self, exchange: Exchange, ns: int) -> None:
        """The response of `exchange` ended at `ns`."""

    def failed(self, exchange: Exchange, kind: str, detail: str) -> None:
        """No complete response will come."""

    def unprocessed(self, exchange: Exchange) -> None:
        """The server closed before it took in any byte of the request; it may be sent again."""

    def lost(self, connection: "Connection") -> None:
        """The connection is gone."""


class Connection(asyncio.Protocol):
    """Sends one request at a time and journals its response.

    `sock` is the connected socket. Without TLS requests are written to it directly, so that `sent` is taken
    just before the first byte goes to the kernel and not before the loop's next round.
    """

    def __init__(
        self, owner: Owner, journal: Journal, counters: memoryview, sock: socket.socket, tls: bool
    ) -> None:
        self._owner = owner
        self._add: Callable[[int, int, int, bytes], None] = journal.add
        self._counters = counters
        self._sock = sock
        self._tls = tls
        self._transport: asyncio.Transport | None = None
        self._parser: Any = httptools.HttpResponseParser(self)
        self._feed: Any = self._parser.feed_data
        self._exchange: Exchange | None = None
        self._now = 0
        self._before_ns = 0  # of the read before
        self._parts: list[bytes] = []
        self._slot: StreamSlot | None = None  # by which the compiled reader can read an answer
        self._acked_before = 0
        self._acked_at_end: int | None = None
        self._reset()
        self.closed = False

    def _reset(self) -> None:
        self._headers: dict[bytes, bytes] = {}
        self._stream = False
        self._framed = False
        self._between_chunks = False  # unless the read ended within the line of a size
        self._started = False
        self._complete = False
        self._reusable = False
        self._stray = False
        self._refusal: str | None = None
        self._body_bytes = 0
        self._unbroken = 0  # bytes since a read that is known to hold a line end
        self._bare = 0  # bytes since one that brought a part of the body

    # Sending

    def looks_alive(self) -> bool:
        """Whether the server has neither closed this idle connection nor said anything on it."""
        if self.closed:
            return False
        if self._tls:
            return True
        try:
            self._sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def send(self, exchange: Exchange) -> None:
        """Write the request of `exchange`, whose payload is there; its fate is told to the owner."""
        payload = exchange.payload
        if payload is None or self._transport is None:
            raise RuntimeError("nothing to send, or nowhere to send it")
        self._reset()
        self._exchange = exchange
        self._acked_before = bytes_acked(self._sock)
        exchange.sent_ns = monotonic_ns()
        if self._tls:
            self._transport.write(payload)
        else:
            try:
                written = self._sock.send(payload)
            except BlockingIOError:
                written = 0
            except OSError:  # closed by the server a moment ago: not a byte left this machine
                self._exchange = None
                self.close()
                self._owner.unprocessed(exchange)
                return
            if written < len(payload):
                self._transport.write(memoryview(payload)[written:])
        self._add(Kind.SENT, exchange.request, exchange.sent_ns, b"")

    def carries(self, exchange: Exchange) -> bool:
        """Whether `exchange` is under way on this connection."""
        return self._exchange is exchange

    def close(self) -> None:
        """Drop the connection without telling anyone."""
        self._exchange = None
        self.closed = True
        if self._transport is not None:
            self._transport.abort()

    # Receiving

    def data_received(self, data: bytes) -> None:
        """asyncio: one read of a transport that knows no instants."""
        self.arrived(data, monotonic_ns())

    def arrived(self, data: bytes | memoryview, now: int) -> None:
        """Keep what one read brought, the last of it at `now`."""
        exchange = self._exchange
        if exchange is None:  # nobody asked: the server says goodbye, or errs
            self._owner.lost(self)
            self.close()
            return
        self._now = now
        self._started = True
        if (slot := exchange.slot) is not None:
            self._take_back(exchange, slot)
        self._before_ns, exchange.last_read_ns = exchange.last_read_ns, now
        exchange.reads += 1
        try:
            self._feed(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if not self._complete:
                self._keep_parts(exchange)
                self._fail(exchange, "bad_response", f"The answer is not HTTP: {error}")
                return
            self._stray = True  # the answer was whole; only what follows it is none
        if self._parts:
            self._bare = 0
            self._keep_parts(exchange)
        else:
            self._bare += len(data)
        if self._complete and self._refusal is None:
            self._finish(exchange, now)
        elif self._refusal is not None:
            self._fail(exchange, "bad_response", self._refusal)
        elif self._bare > MOST_HEAD_BYTES:
            self._fail(exchange, "bad_response", f"Over {MOST_HEAD_BYTES >> 10} KiB came without a body.")
        elif (self._unbroken > LONGEST_LINE_BYTES or self._body_bytes > MOST_BODY_BYTES) and (
            why := endless(self._body_bytes, self._unbroken)
        ):
            self._fail(exchange, "oversized", why)
        elif self._between_chunks and data[-2:] == b"\r\n" and self._stream and exchange.kept is None:
            self._give(exchange)

    def _give(self, exchange: Exchange) -> None:
        """Let the compiled reader, if there is one, read on: whole chunks change nothing in the parser."""
        if self._slot is not None:
            self._slot.give(exchange.request, self._now, MOST_BODY_BYTES - self._body_bytes)
            exchange.slot = self._slot

    def _take_back(self, exchange: Exchange, slot: StreamSlot) -> None:
        """Read on from where the compiled reader stopped."""
        exchange.slot = None
        slot.withhold()
        if slot.reads:
            exchange.last_read_ns = slot.latest_ns
            exchange.reads += slot.reads
            self._body_bytes += slot.bytes
            self._unbroken = self._bare = 0  # each of its reads ended with a line

    def _keep_parts(self, exchange: Exchange) -> None:
        parts = self._parts
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        self._parts = []
        size = len(body)
        if self._stream:
            self._unbroken += size  # a line end is only looked for once in so many bytes
            if self._unbroken > LONGEST_LINE_BYTES and (b"\n" in body or b"\r" in body):
                self._unbroken = 0
            self._counters[CHUNKS] += 1
            if body[:1] == b":" and b"\ndata" not in body and b"\rdata" not in body:
                # Comments that keep the connection open are no progress: patience runs on.
                exchange.last_read_ns = self._before_ns
                exchange.reads -= 1
            if exchange.kept is not None:
                exchange.kept.append(body)
        else:
            body = body[: max(0, ODD_BODY_BYTES - self._body_bytes)]
        self._body_bytes += size
        self._add(_BODY, exchange.request, self._now, body)

    def on_message_begin(self) -> None:
        """httptools: a response begins; a second one to a single request is not ours."""
        self._stray = self._complete

    def on_header(self, name: bytes, value: bytes) -> None:
        """httptools: one header."""
        self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        """httptools: status and headers are there."""
        status = self._parser.get_status_code()
        exchange = self._exchange
        if self._stray or exchange is None or status < 200:
            return
        headers = self._headers
        kind = headers.get(b"content-type", b"")
        self._stream = status == 200 and kind.lower().startswith(b"text/event-stream")
        self._framed = (
            b"content-length" in headers or b"chunked" in headers.get(b"transfer-encoding", b"").lower()
        )
        encoding = headers.get(b"content-encoding", b"identity").lower()
        if encoding != b"identity":
            self._refusal = (
                f"The answer is encoded ({encoding.decode('latin-1')[:40]}), and nobody asked for that."
            )
        exchange.headers_ns = self._now
        exchange.status = status
        location = headers.get(b"location", b"")[:200]
        self._add(Kind.HEADERS, exchange.request, self._now, b"%d\n%b\n%b" % (status, kind[:100], location))

    def on_body(self, body: bytes) -> None:
        """httptools: a piece of the body."""
        if not self._stray:
            self._parts.append(body)

    def on_chunk_header(self) -> None:
        """httptools: the size of a chunk."""
        self._between_chunks = False

    def on_chunk_complete(self) -> None:
        """httptools: a chunk is complete, the line end behind it included."""
        self._between_chunks = True

    def on_message_complete(self) -> None:
        """httptools: the response is complete; 1xx ones only announce the true one."""
        if self._parser.get_status_code() < 200:
            self._headers = {}
            return
        self._complete = True
        self._reusable = bool(self._parser.should_keep_alive())

    def _finish(self, exchange: Exchange, now: int) -> None:
        self._exchange = None
        self._add(Kind.END, exchange.request, now, b"")
        transport = self._transport
        whole = transport is not None and not transport.get_write_buffer_size()  # of the request
        reusable = self._reusable and whole and not self._stray and not self.closed
        if not reusable:
            self.close()
        self._owner.released(self, reusable)
        self._owner.completed(exchange, now)

    def _fail(self, exchange: Exchange, kind: str, detail: str) -> None:
        self.close()
        self._owner.lost(self)
        self._owner.failed(exchange, kind, detail)

    # The connection's own life

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio: connected."""
        self._transport = transport  # type: ignore[assignment]
        self._slot = transport.get_extra_info("slot")

    def eof_received(self) -> None:
        """asyncio: the server will send no more; the connection is closed."""
        self._acked_at_end = bytes_acked(self._sock)

    def connection_lost(self, error: Exception | None) -> None:
        """asyncio: gone; whatever was under way ends here, in one of the ways HTTP allows."""
        now = monotonic_ns()
        # The parser and its protocol hold each other, and no garbage collector runs beside the clock.
        self._parser = self._feed = None
        self._transport = None
        if self.closed:
            return
        exchange = self._exchange
        untouched = exchange is not None and not self._started and self._untouched()
        headers_seen = exchange is not None and exchange.headers_ns > 0
        self.closed = True
        self._exchange = None
        if exchange is None:
            self._owner.lost(self)
        elif headers_seen and not self._framed and error is None:
            self._reusable = False
            self._finish(exchange, now)
        elif untouched:
            self._owner.lost(self)
            self._owner.unprocessed(exchange)
        else:
            why = f" ({error})" if error else ""
            self._owner.lost(self)
            if headers_seen:
                self._owner.failed(
                    exchange, "truncated", f"The server closed the connection in mid-answer{why}."
                )
            else:
                self._owner.failed(
                    exchange, "disconnected", f"The server closed the connection unanswered{why}."
                )

    def _untouched(self) -> bool:
        """Whether the server's kernel took in not one byte of the request. Where nobody knows, it may have."""
        acked = self._acked_at_end if self._acked_at_end is not None else bytes_acked(self._sock)
        return self._acked_before > 0 and acked == self._acked_before
