"""An answer that comes through a real socket in given reads, to a connection of the measuring client."""

import asyncio
import fcntl
import socket
import struct
import termios
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic_ns

from harness.client.arrival_clock import ask_for_stamps, stamping_began
from harness.client.chunk_reader import ChunkReader, compiled_reader
from harness.client.connection import Connection
from harness.client.counters import CHUNKS
from harness.client.exchange import Exchange
from harness.client.exchanges import collect
from harness.client.journal import Journal, Kind, read_journal
from harness.client.receiver import Receiver
from tests.support.wire import Owner, Received

REQUEST = b"POST / HTTP/1.1\r\n\r\n"


@dataclass
class ReceivedByReader(Received):
    """by_reader: how many reads the compiled reader made itself. chunks: the reads that progress was told of."""

    by_reader: int = 0
    chunks: int = 0


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    """A client's end, which does not block, and the server's."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        ours = socket.create_connection(listening.getsockname())
        theirs, _ = listening.accept()
    ours.setblocking(False)
    theirs.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return ours, theirs


def waiting(sock: socket.socket, request: int) -> int:
    """Bytes in a queue of the socket: FIONREAD for those to be read, TIOCOUTQ for those the other side lacks."""
    size: int = struct.unpack("i", fcntl.ioctl(sock, request, bytes(4)))[0]
    return size


async def arrived(theirs: socket.socket) -> None:
    """Until everything that was sent is in the other side's queue, or was read there."""
    while waiting(theirs, termios.TIOCOUTQ):
        await asyncio.sleep(0)


def receive_by_reader(pieces: Sequence[bytes], eof: bool = False) -> ReceivedByReader:
    """Send one answer in these pieces, each when the one before has been read; eof: the server closes behind them."""
    return asyncio.run(_receive(pieces, eof))


async def _receive(pieces: Sequence[bytes], eof: bool) -> ReceivedByReader:
    library = compiled_reader()
    assert library is not None, "these tests need a C compiler"
    calls: list[tuple[int, int]] = []
    ours, theirs = tcp_pair()
    with TemporaryDirectory() as folder, theirs:
        assert ask_for_stamps(ours) and await stamping_began(20)
        journal = Journal(Path(folder) / "journal")
        owner = Owner(journal)
        counters = memoryview(bytearray(4096)).cast("Q")
        reader = _Counting(library, journal, counters)
        receiver = Receiver(asyncio.get_running_loop(), reader)
        connection = Connection(owner, journal, counters, ours, False)
        receiver.attach(ours, connection)
        journal.add(Kind.SCHEDULED, 0, monotonic_ns())
        connection.send(Exchange(0, 0, 0, 0, REQUEST, False))
        for piece in pieces:
            if connection.closed:
                break
            before = monotonic_ns()
            theirs.sendall(piece)
            await arrived(theirs)
            while not connection.closed and waiting(ours, termios.FIONREAD):
                await asyncio.sleep(0)
            calls.append((before, monotonic_ns()))
        if eof:
            theirs.shutdown(socket.SHUT_WR)
            async with asyncio.timeout(20):
                while not connection.closed:
                    await asyncio.sleep(0)
        connection.close()
        await asyncio.sleep(0)
        receiver.close()
        journal.close()
        raw = collect(read_journal(Path(folder) / "journal"))[0]
        return ReceivedByReader(raw, owner.notes, calls, reader.total, counters[CHUNKS])


class _Counting(ChunkReader):
    """Also keeps how many reads it made in all."""

    total = 0

    def look(self, *arguments: int):  # type: ignore[no-untyped-def]
        ready = super().look(*arguments)
        self.total += self.reads
        return ready
