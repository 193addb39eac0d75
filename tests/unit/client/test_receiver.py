"""The client's own reading of sockets: instants, bytes and ends, against real sockets."""

import asyncio
import contextlib
import os
import socket
import struct
import threading
from collections.abc import AsyncIterator, Callable
from time import monotonic_ns

import pytest

from harness.client.arrival_clock import ClockOffset, ask_for_stamps, stamping_began
from harness.client.plain_transport import PlainTransport
from harness.client.receiver import Receiver


class Heard:
    """A protocol that notes what it is told, and when it was told."""

    def __init__(self) -> None:
        self.transport: asyncio.BaseTransport | None = None
        self.reads: list[
            tuple[int, int, bytes]
        ] = []  # the instant given, the instant of being told, the bytes
        self.ends: list[object] = []
        self.on_read: Callable[[], None] = lambda: None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def arrived(self, data: memoryview, ns: int) -> None:
        self.reads.append((ns, monotonic_ns(), bytes(data)))
        self.on_read()

    def eof_received(self) -> None:
        self.ends.append("eof")

    def connection_lost(self, error: Exception | None) -> None:
        self.ends.append(error)

    @property
    def data(self) -> bytes:
        return b"".join(data for _, _, data in self.reads)


class AlwaysPausing:
    """In place of the moderation that decides: a pause after every look that found something."""

    pause_ns = 2_000_000
    gap_ns = 0

    def __init__(self) -> None:
        self.looks: list[int] = []

    def woke(self, now_ns: int, reads: int, short: int, late: bool) -> int:
        self.looks.append(reads)
        return self.pause_ns


@contextlib.asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    keeper = socket.socket()
    with keeper:
        assert ask_for_stamps(keeper) and await stamping_began(20)
        receiver = Receiver(asyncio.get_running_loop())
        yield receiver
    await asyncio.sleep(0)
    receiver.close()


def attached(receiver: Receiver) -> tuple[Heard, PlainTransport, socket.socket]:
    """A protocol on a new connection, and the server's end of it."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        sock = socket.create_connection(listening.getsockname())
        server, _ = listening.accept()
    sock.setblocking(False)
    server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    heard = Heard()
    return heard, receiver.attach(sock, heard), server


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("pausing", [False, True])
async def test_instants_lie_between_the_servers_write_and_the_reading(pausing: bool) -> None:
    async with receiving() as receiver:
        if pausing:
            receiver.moderation = AlwaysPausing()  # type: ignore[assignment]
        heard, transport, server = attached(receiver)
        for number in range(50):
            before = monotonic_ns()
            server.sendall(b"%d\n" % number)
            await until(lambda count=number: len(heard.reads) > count)
            ns, told, data = heard.reads[number]
            assert data == b"%d\n" % number
            assert before <= ns <= told
        assert receiver.by_process == 0 and receiver.stamped
        transport.abort()
        server.close()


async def test_a_busy_client_does_not_show_in_the_instants() -> None:
    """While the loop is held up the server sends; the bytes have the kernel's instant, not that of the reading."""
    async with receiving() as receiver:
        heard, transport, server = attached(receiver)
        blocked, sent = threading.Event(), threading.Event()
        written: list[int] = []

        def serve() -> None:
            blocked.wait()
            for _ in range(3):
                written.append(monotonic_ns())
                server.sendall(b"x")
            sent.set()

        thread = threading.Thread(target=serve)
        thread.start()
        blocked.set()
        sent.wait()  # holds the loop up until all has been sent
        freed = monotonic_ns()
        await until(lambda: heard.reads)
        thread.join()
        ns, told, data = heard.reads[0]
        assert data == b"xxx"  # one read, which has the instant of its last byte
        assert written[-1] <= ns <= freed <= told
        assert receiver.by_process == 0
        transport.abort()
        server.close()


async def test_without_stamps_the_process_keeps_time_and_counts() -> None:
    """Unix sockets carry no instants, as kernels that know none would not."""
    async with receiving() as receiver:
        receiver.moderation = AlwaysPausing()  # type: ignore[assignment]
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        heard = Heard()
        transport = receiver.attach(ours, heard)
        for number in range(5):
            before = monotonic_ns()
            theirs.send(b"x")
            await until(lambda count=number: len(heard.reads) > count)
            ns, told, _ = heard.reads[number]
            assert before <= ns <= told
        assert receiver.by_process == 5
        assert receiver.moderation.looks == [1] * 5  # type: ignore[attr-defined]  # so there was no pause to end
        transport.abort()
        theirs.close()


async def test_a_clock_that_was_set_is_noticed() -> None:
    async with receiving() as receiver:
        heard, transport, server = attached(receiver)
        for step in (3_600_000_000_000, -3_600_000_000_000, 20_000):
            receiver.offset.ns += step  # what a clock set by as much looks like
            before = monotonic_ns()
            server.sendall(b"a")
            await until(lambda: heard.reads)
            ns, told, _ = heard.reads.pop()
            assert before <= ns <= told
        assert receiver.by_process == 3
        server.sendall(b"b")
        await until(lambda: heard.reads)
        assert receiver.by_process == 3  # by the kernel again
        transport.abort()
        server.close()


def test_offset() -> None:
    offset = ClockOffset()
    true = offset.ns
    assert offset.held(monotonic_ns())
    offset.ns += 1_000_000_000
    assert not offset.held(monotonic_ns())
    assert abs(offset.ns - true) < 1_000_000
    assert offset.held(monotonic_ns() - 50_000_000)  # held up between two looks, but nobody set the clock


def test_a_system_that_stamps_nothing() -> None:
    closed = socket.socket()
    closed.close()
    assert not ask_for_stamps(closed)


@pytest.mark.parametrize("pausing", [False, True])
async def test_what_the_kernel_does_not_take_is_sent_in_order(pausing: bool) -> None:
    async with receiving() as receiver:
        if pausing:
            receiver.moderation = AlwaysPausing()  # type: ignore[assignment]
        heard, transport, server = attached(receiver)
        server.sendall(b"first")
        await until(lambda: heard.reads)
        payload = os.urandom(12 << 20)
        got = bytearray()

        def read() -> None:
            while len(got) < len(payload):
                got.extend(server.recv(1 << 16))

        transport.write(payload[: 8 << 20])
        transport.write(memoryview(payload)[8 << 20 :])
        thread = threading.Thread(target=read)
        thread.start()
        await until(lambda: not thread.is_alive())
        assert got == payload
        transport.abort()
        server.close()


async def test_many_bytes_at_once() -> None:
    async with receiving() as receiver:
        receiver.moderation = AlwaysPausing()  # type: ignore[assignment]
        heard, _, server = attached(receiver)
        payload = os.urandom(3 << 20)
        thread = threading.Thread(target=lambda: (server.sendall(payload), server.close()))
        thread.start()
        await until(lambda: heard.ends)
        thread.join()
        assert heard.data == payload
        assert [ns for ns, _, _ in heard.reads] == sorted(ns for ns, _, _ in heard.reads)
        await until(lambda: len(heard.ends) == 2)
        assert heard.ends == ["eof", None]


async def test_a_reset_is_an_error() -> None:
    async with receiving() as receiver:
        heard, transport, server = attached(receiver)
        server.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        server.close()
        await until(lambda: heard.ends)
        assert len(heard.ends) == 1 and isinstance(heard.ends[0], ConnectionResetError)
        assert transport.is_closing()
        transport.write(b"too late")


async def test_a_reset_while_bytes_wait_to_be_sent() -> None:
    async with receiving() as receiver:
        heard, transport, server = attached(receiver)
        transport.write(b"x" * (32 << 20))
        server.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        server.close()
        await until(lambda: heard.ends)
        assert len(heard.ends) == 1 and isinstance(heard.ends[0], OSError)


async def test_many_streams_in_one_look() -> None:
    """What comes within a pause is read together, each stream's bytes by themselves and with their own instant."""
    async with receiving() as receiver:
        moderation = AlwaysPausing()
        receiver.moderation = moderation  # type: ignore[assignment]
        streams = [attached(receiver) for _ in range(20)]
        sent: list[int] = []
        for number, (_, _, server) in enumerate(streams):  # the loop does not run meanwhile
            sent.append(monotonic_ns())
            server.sendall(b"%d" % number)
        await until(lambda: all(heard.reads for heard, _, _ in streams))
        for number, (heard, _, _) in enumerate(streams):
            ((ns, _, data),) = heard.reads
            after = sent[number + 1] if number + 1 < len(sent) else heard.reads[0][1]
            assert data == b"%d" % number and sent[number] <= ns <= after
        assert moderation.looks[0] == 20
        await until(
            lambda: moderation.looks[-1] == 0
        )  # quiet: whatever comes next wakes the client by itself
        looks = len(moderation.looks)
        await asyncio.sleep(0.02)
        assert len(moderation.looks) == looks
        for _, transport, server in streams:
            transport.abort()
            server.close()


async def test_one_that_is_closed_by_what_another_brought() -> None:
    async with receiving() as receiver:
        streams = [attached(receiver) for _ in range(2)]
        for heard, _, server in streams:
            heard.on_read = lambda: [transport.abort() for _, transport, _ in streams]  # type: ignore[assignment, misc]
            server.sendall(b"x")
        await until(lambda: all(heard.ends for heard, _, _ in streams))
        assert sum(len(heard.reads) for heard, _, _ in streams) == 1
        assert [heard.ends for heard, _, _ in streams] == [[None], [None]]
        for _, _, server in streams:
            server.close()
