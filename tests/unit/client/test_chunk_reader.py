"""The compiled reader: what it takes is what Python would have taken, and everything else it leaves as it came."""

import asyncio
import select
import shutil
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic_ns

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.client.arrival_clock import ClockOffset, ask_for_stamps, stamping_began
from harness.client.chunk_reader import ChunkReader, Ready, StreamSlot, compiled_reader
from harness.client.counters import CHUNKS
from harness.client.exchange import Exchange
from harness.client.journal import Journal, Kind, read_journal
from harness.client.outcome import outcome_of
from harness.client.setup import Limits
from tests.support.answering import arrived, receive_by_reader, tcp_pair
from tests.support.wire import Part, event, json_event, put_on_wire, receive, split
from tests.unit.client.test_wire import CUTS, check_events, choice, parts

pytestmark = pytest.mark.skipif(not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="no C compiler")
LONG_NS = 3_600_000_000_000
TOKEN = json_event(choice(text=" word"), text=" word")
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(body: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(body), body)


@given(
    stream=parts(),
    cuts=CUTS,
    extra=st.lists(st.integers(1, 60), max_size=2),
    trailer=st.sampled_from([b"", b"T: 1\r\n"]),
    extension=st.sampled_from(["", "", ";n"]),
    end=st.floats(0, 1) | st.just(1.0),
)
def test_the_same_as_python_makes_of_it(
    stream: list[Part], cuts: list[int], extra: list[int], trailer: bytes, extension: str, end: float
) -> None:
    """Chunks that are mostly whole events, cut anywhere, breaking off anywhere."""
    sizes = [len(part.data) for part in stream] + extra
    wire = put_on_wire(stream, "chunked", sizes, extension=extension, trailer=trailer)
    data = wire.data[: max(1, round(end * len(wire.data)))]
    pieces = split(data, cuts)
    broken = len(data) < len(wire.data)
    got, known = receive_by_reader(pieces, eof=broken), receive(pieces, eof=broken)
    outcome = check_events(stream, wire, got, pieces)
    other = outcome_of(known.raw)
    assert got.notes == known.notes
    assert got.raw.body.data == known.raw.body.data
    assert got.raw.body.ends.tolist() == known.raw.body.ends.tolist()
    assert (outcome.error, outcome.text, outcome.answer.unexpected) == (
        other.error,
        other.text,
        other.answer.unexpected,
    )


def test_a_usual_answer_is_read_without_python() -> None:
    pieces = [HEAD + chunk(TOKEN.data), *[chunk(TOKEN.data)] * 20, chunk(TOKEN.data) * 3, b"0\r\n\r\n"]
    got = receive_by_reader(pieces)
    outcome = outcome_of(got.raw)
    assert got.by_reader == 21 and got.chunks == 22
    assert outcome.events == 24 and got.notes == ["reusable", "completed"]
    assert outcome.ns.tolist() == sorted(outcome.ns.tolist())
    for (before, after), ns in zip(got.calls[1:21], outcome.ns.tolist()[1:21], strict=True):
        assert before <= ns <= after


def test_each_single_split_of_a_usual_answer() -> None:
    stream = [TOKEN] * 3 + [json_event(choice(text="", finish_reason="stop"), finish="stop")]
    wire = put_on_wire(stream, "chunked", [len(part.data) for part in stream])
    for cut in range(1, len(wire.data)):
        pieces = [wire.data[:cut], wire.data[cut:]]
        outcome = check_events(stream, wire, receive_by_reader(pieces), pieces)
        assert outcome.error is None and outcome.answer.unexpected == 0


@asynccontextmanager
async def reading(tmp_path: Path) -> AsyncIterator["Reading"]:
    library = compiled_reader()
    assert library is not None
    with socket.socket() as keeper:  # the kernel stamps while there is a socket that asks for it
        assert ask_for_stamps(keeper) and await stamping_began(20)
        made = Reading(library, Journal(tmp_path / "journal"))
        try:
            yield made
        finally:
            made.close()


class Reading:
    """A reader with connections in mid-answer, which are looked at when a test says so."""

    def __init__(self, library: Path, journal: Journal) -> None:
        self.journal = journal
        self.counters = memoryview(bytearray(4096)).cast("Q")
        self.reader = ChunkReader(library, journal, self.counters)
        self.epoll = select.epoll()
        self.flags = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLET
        self.sockets: list[socket.socket] = []

    def stream(self, request: int = 7, most_bytes: int = 1 << 20) -> tuple[StreamSlot, int, socket.socket]:
        ours, theirs = tcp_pair()
        assert ask_for_stamps(ours)
        self.sockets += [ours, theirs]
        self.epoll.register(ours, self.flags)
        slot = self.reader.slot(ours.fileno())
        assert slot is not None
        slot.give(request, monotonic_ns(), most_bytes)
        return slot, ours.fileno(), theirs

    def look(self, longest_ns: int = LONG_NS, gap_ns: int = 0) -> list[Ready]:
        return list(
            self.reader.look(self.epoll.fileno(), monotonic_ns(), ClockOffset().ns, longest_ns, gap_ns)
        )

    def close(self) -> None:
        self.epoll.close()
        for sock in self.sockets:
            sock.close()


LINE = b"data: x\n\n"


@pytest.mark.parametrize(
    "odd",
    [
        b"0\r\n\r\n",  # the end
        chunk(LINE) + b"0\r\n\r\n",
        chunk(LINE)[:-1],  # not all of it
        chunk(LINE)[:-2],
        chunk(LINE)[1:],
        chunk(LINE) + b"9",
        chunk(LINE) + b"\r\n",
        b"9;n=1\r\n" + LINE + b"\r\n",
        b" 9\r\n" + LINE + b"\r\n",
        b"9 \r\n" + LINE + b"\r\n",
        b"0x9\r\n" + LINE + b"\r\n",
        b"-9\r\n" + LINE + b"\r\n",
        b"9\n" + LINE + b"\r\n",
        b"9\r\n" + LINE + b"\n\n",
        b"8\r\n" + LINE + b"\r\n",  # longer than it says
        b"a\r\n" + LINE + b"\r\n",  # shorter
        b"fffffffffffffff9\r\n" + LINE + b"\r\n",
        b"00000009\r\n" + LINE + b"\r\n",  # by the book, but nobody writes it
        chunk(b": still here\n\n"),
        chunk(b"data: half a li"),
        chunk(b"data: x\r\r"),
    ],
)
async def test_what_is_not_whole_chunks_of_whole_lines_is_left_as_it_came(tmp_path: Path, odd: bytes) -> None:
    async with reading(tmp_path) as made:
        slot, fd, theirs = made.stream()
        before = monotonic_ns()
        theirs.sendall(odd)
        await arrived(theirs)
        (ready,) = made.look()
        assert (ready.fd, bytes(ready.data or b""), ready.errno) == (fd, odd, 0)
        assert before <= ready.ns <= monotonic_ns()
        assert slot.reads == slot.bytes == made.reader.reads == made.counters[CHUNKS] == 0
        made.journal.close()
        assert list(read_journal(tmp_path / "journal")) == []


async def test_what_it_takes(tmp_path: Path) -> None:
    async with reading(tmp_path) as made:
        one, _, server = made.stream(request=3)
        two, _, other = made.stream(request=1 << 31)
        server.sendall(chunk(LINE) + b"%X\r\n%b\r\n" % (len(LINE), LINE))
        other.sendall(chunk(LINE))
        for each in (server, other):
            await arrived(each)
        assert made.look(gap_ns=LONG_NS) == []
        assert (made.reader.reads, made.reader.short, made.counters[CHUNKS]) == (2, 2, 2)
        assert (one.reads, one.bytes, two.reads, two.bytes) == (1, 18, 1, 9)
        assert made.look() == [] and made.reader.reads == 0
        made.journal.close()
        entries = sorted(read_journal(tmp_path / "journal"), key=lambda entry: entry[1])
        assert [(kind, request, body) for kind, request, _, body in entries] == [
            (Kind.BODY, 3, LINE * 2),
            (Kind.BODY, 1 << 31, LINE),
        ]
        assert [ns for _, _, ns, _ in entries] == [one.latest_ns, two.latest_ns]


async def test_limits_and_instants_that_python_has_to_judge(tmp_path: Path) -> None:
    async with reading(tmp_path) as made:
        slot, _, theirs = made.stream(most_bytes=2 * len(LINE))
        for expected in (0, 0, 1):  # the third is beyond the limit
            theirs.sendall(chunk(LINE))
            await arrived(theirs)
            assert len(made.look()) == expected
        slot.give(7, monotonic_ns(), 1 << 20)
        theirs.sendall(chunk(LINE))
        await arrived(theirs)
        await asyncio.sleep(0.002)
        assert len(made.look(longest_ns=1_000_000)) == 1  # read long after it came
        slot.give(7, monotonic_ns() + LONG_NS, 1 << 20)
        theirs.sendall(chunk(LINE))
        await arrived(theirs)
        assert len(made.look()) == 1  # before the one before it
        slot.withhold()
        theirs.sendall(chunk(LINE))
        await arrived(theirs)
        (ready,) = made.look()
        assert ready.data is None  # not even read


async def test_the_end_and_a_reset(tmp_path: Path) -> None:
    async with reading(tmp_path) as made:
        _, fd, theirs = made.stream()
        theirs.sendall(chunk(LINE))
        await arrived(theirs)
        theirs.close()
        await asyncio.sleep(0.01)
        (ready,) = made.look()
        assert made.reader.reads == 1 and (ready.fd, ready.data, ready.errno) == (fd, b"", 0)
        _, fd, theirs = made.stream()
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        theirs.close()
        await asyncio.sleep(0.01)
        (ready,) = [ready for ready in made.look() if ready.fd == fd]
        assert ready.data is None and ready.errno == 104  # ECONNRESET


async def test_more_than_one_look_holds(tmp_path: Path) -> None:
    """Neither the journal's room nor that for what is handed over runs out: the rest is left to be read."""
    async with reading(tmp_path) as made:
        body = b"data: " + b"x" * 49_000 + b"\n\n"
        streams = [made.stream(request=number) for number in range(60)]
        for number, (_, _, theirs) in enumerate(streams):
            theirs.sendall(chunk(body) if number % 2 else b"y" * len(chunk(body)))
        await asyncio.sleep(0.05)
        ready = made.look()
        taken = sum(slot.reads for slot, _, _ in streams)
        untouched = [each for each in ready if each.data is None]
        handed = [each for each in ready if each.data is not None]
        assert taken + len(untouched) + len(handed) == 60 and taken and handed and untouched
        assert all(bytes(each.data or b"") == b"y" * len(chunk(body)) for each in handed)
        made.journal.close()
        assert [body for _, _, _, body in read_journal(tmp_path / "journal")] == [body] * taken


def test_patience_counts_what_the_reader_read() -> None:
    limits = Limits(
        connect_ns=1, first_token_ns=100, token_ns=10, request_ns=500, drain_ns=0, duration_ns=None, cap=None
    )
    waiting = Exchange(0, 0, 0, 0, b"", False)
    waiting.sent_ns, waiting.last_read_ns, waiting.reads = 1000, 1050, 1
    values = memoryview(bytearray(8 * 5)).cast("q")
    waiting.slot = StreamSlot(values, 0)
    waiting.slot.give(0, 1050, 100)
    assert waiting.deadline_ns(limits) == 1100  # nothing yet
    values[1], values[2] = 1095, 1
    assert waiting.deadline_ns(limits) == 1105
    waiting.again()
    assert waiting.slot is None


def test_comments_are_no_progress() -> None:
    """Between tokens of the reader's, a comment goes through Python, which leaves patience where it was."""
    pieces = [
        HEAD + chunk(TOKEN.data),
        chunk(TOKEN.data),
        chunk(event([": ping"], "\n").data),
        chunk(TOKEN.data),
    ]
    got = receive_by_reader([*pieces, b"0\r\n\r\n"])
    assert got.by_reader == 2 and outcome_of(got.raw).events == 3
