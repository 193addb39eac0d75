"""Connections kept open between requests: opened before the run, reused, replaced when they are closed."""

import asyncio
import contextlib
import socket
from collections import deque
from pathlib import Path
from typing import Any, Protocol

from harness.client.arrival_clock import stamping_began
from harness.client.chunk_reader import ChunkReader
from harness.client.connection import Connection
from harness.client.exchange import Exchange
from harness.client.journal import Journal
from harness.client.receiver import Receiver
from harness.client.setup import Setup

_OPENING_AT_ONCE = 64
_STAMPING_S = 1.0  # for the kernel to begin


class Listener(Protocol):
    """Who hears how requests end."""

    def completed(self, exchange: Exchange, ns: int) -> None:
        """The response ended at `ns`."""

    def failed(self, exchange: Exchange, kind: str, detail: str) -> None:
        """There is no complete response."""


class Pool:
    """Gives each request an idle connection, or a new one. It never limits how many there are."""

    def __init__(self, setup: Setup, journal: Journal, counters: memoryview, listener: Listener) -> None:
        self._setup = setup
        self._journal = journal
        self._counters = counters
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._tls = setup.trust.context() if setup.tls else None
        self._reader = _chunk_reader(setup, journal, counters)
        self._receiver = None if setup.tls else Receiver(self._loop, self._reader)
        self._addresses: list[tuple[Any, ...]] = []
        self._all: set[Connection] = set()
        self._idle: list[Connection] = []
        self._waiting: deque[Exchange] = deque()
        self._opening: set[asyncio.Task[None]] = set()
        self._closed = False
        self.opened = 0
        self.reconnects = 0  # requests sent again, because the server had closed before taking them in
        self.closed_idle = 0  # connections that the server closed between two requests

    async def prepare(self) -> None:
        """Open the connections of the setup. Requests that find none left open their own."""
        at_once = asyncio.Semaphore(_OPENING_AT_ONCE)
        reachable = True

        async def one() -> None:
            nonlocal reachable
            async with at_once:
                if not reachable:
                    return
                try:
                    self._idle.append(await self._open())
                except (OSError, TimeoutError):
                    reachable = False

        await asyncio.gather(*(one() for _ in range(self._setup.connections)))
        if self._idle and self._receiver is not None:
            await stamping_began(_STAMPING_S)

    def send(self, exchange: Exchange) -> None:
        """Send a request now, or as soon as a connection is there."""
        while self._idle:
            connection = self._idle.pop()
            if connection.looks_alive():
                connection.send(exchange)
                return
            self.closed_idle += 1
            self._all.discard(connection)
            connection.close()
        self._send_on_new(exchange)

    def abandon(self, exchange: Exchange) -> None:
        """Give up a request: its connection cannot be used for another."""
        with contextlib.suppress(ValueError):
            self._waiting.remove(exchange)
        for connection in self._all:
            if connection.carries(exchange):
                self._all.discard(connection)
                connection.close()
                return

    @property
    def stamps(self) -> dict[str, object]:
        """Whose instants the arrivals have ("kernel" or "process"), and how many reads of the kernel's had none."""
        kernel = self._receiver is not None and self._receiver.stamped
        by_process = self._receiver.by_process if self._receiver is not None else 0
        return {"stamps": "kernel" if kernel else "process", "stamps_by_process": by_process}

    @property
    def reader(self) -> str:
        """What may read streams in mid-answer, "compiled" or "python" alone."""
        return "python" if self._reader is None else "compiled"

    async def close(self) -> None:
        """Close everything."""
        self._closed = True
        tasks = list(self._opening)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for connection in self._all:
            connection.close()
        await asyncio.sleep(0)
        if self._receiver is not None:
            self._receiver.close()

    # What connections tell

    def released(self, connection: Connection, reusable: bool) -> None:
        """See `connection.Owner`."""
        if not reusable:
            self._all.discard(connection)
            self._refill()
        elif self._waiting:
            connection.send(self._waiting.popleft())
        else:
            self._idle.append(connection)

    def completed(self, exchange: Exchange, ns: int) -> None:
        """See `connection.Owner`."""
        if self._receiver is not None:
            self._receiver.moderation.answered(ns - exchange.sent_ns)
        self._listener.completed(exchange, ns)

    def failed(self, exchange: Exchange, kind: str, detail: str) -> None:
        """See `connection.Owner`."""
        self._listener.failed(exchange, kind, detail)

    def unprocessed(self, exchange: Exchange) -> None:
        """See `connection.Owner`. Once is bad luck; twice is a server that does not answer."""
        if exchange.retried:
            self._listener.failed(
                exchange, "disconnected", "The server closed two connections without answering."
            )
            return
        exchange.retried = True
        self.reconnects += 1
        self._send_on_new(exchange)

    def lost(self, connection: Connection) -> None:
        """See `connection.Owner`."""
        self._all.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)
            self.closed_idle += 1
            self._refill()

    # Opening

    def _send_on_new(self, exchange: Exchange) -> None:
        self._waiting.append(exchange)
        self._start_opening()

    def _refill(self) -> None:
        if len(self._all) + len(self._opening) < self._setup.connections:
            self._start_opening()

    def _start_opening(self) -> None:
        if not self._closed:
            task = self._loop.create_task(self._open_one())
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)

    async def _open_one(self) -> None:
        try:
            connection = await self._open()
        except TimeoutError:
            limit = self._setup.limits.connect_ns / 1e9
            self._cannot_connect("timeout_connect", f"No connection within {limit:g} s.")
        except OSError as error:  # refused, unreachable, no such host, no trust in the certificate
            self._cannot_connect("connect", str(error))
        else:
            self.released(connection, True)

    def _cannot_connect(self, kind: str, detail: str) -> None:
        if self._waiting:
            self._listener.failed(self._waiting.popleft(), kind, detail)

    async def _open(self) -> Connection:
        setup = self._setup
        async with asyncio.timeout(setup.limits.connect_ns / 1e9):
            if not self._addresses:
                self._addresses = await self._loop.getaddrinfo(
                    setup.host, setup.port, type=socket.SOCK_STREAM
                )
            sock = await self._connected_socket()
            try:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection = Connection(self, self._journal, self._counters, sock, setup.tls)
                if self._receiver is not None:
                    self._receiver.attach(sock, connection)
                else:
                    await self._loop.create_connection(
                        lambda: connection, sock=sock, ssl=self._tls, server_hostname=setup.host
                    )
            except BaseException:
                sock.close()
                raise
        self.opened += 1
        self._all.add(connection)
        return connection

    async def _connected_socket(self) -> socket.socket:
        """Try the host's addresses in order; the one that works comes first from then on."""
        failure: OSError | None = None
        for address in list(self._addresses):
            sock = socket.socket(address[0], socket.SOCK_STREAM)
            sock.setblocking(False)
            try:
                await self._loop.sock_connect(sock, address[4])
            except OSError as error:
                failure = error
                sock.close()
                continue
            except BaseException:
                sock.close()
                raise
            if address is not self._addresses[0]:
                self._addresses.remove(address)
                self._addresses.insert(0, address)
            return sock
        raise failure or OSError(f"{self._setup.host} has no address")


def _chunk_reader(setup: Setup, journal: Journal, counters: memoryview) -> ChunkReader | None:
    if setup.chunk_reader is None:
        return None
    return ChunkReader(Path(setup.chunk_reader), journal, counters)
