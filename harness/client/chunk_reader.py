"""The compiled reader of streams in mid-answer (chunk_reader.c), and what it shares with Python.

Reading a token takes Python several times as long as the kernel. So where there is a C compiler, what an answer sends
again and again is read, stamped and written to the journal without Python; everything else comes here as it was read.
"""

import ctypes
import mmap
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from harness.client.counters import CHUNKS
from harness.client.journal import Journal
from harness.core.compiling import compiled_c

SOURCE = Path(__file__).with_name("chunk_reader.c")
_NOBODY = -1
_DESCRIPTORS = 1 << 16  # more are left to Python
_MOST_READY = 4096  # as in the source, like all that follows
_UNREAD = -1
_ARENA_BYTES = 1 << 20
_REQUEST, _LATEST_NS, _READS, _BYTES, _MOST_BYTES = range(5)
_STREAM_FIELDS = 5


class _Handed(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in ("descriptor", "events", "size", "offset", "ns")]


class _Look(ctypes.Structure):
    _fields_ = [
        *[
            (name, ctypes.c_int64)
            for name in ("epoll", "now_ns", "offset_ns", "longest_ns", "gap_ns", "descriptors")
        ],
        *[(name, ctypes.c_void_p) for name in ("streams", "handed", "arena", "journal")],
        *[
            (name, ctypes.c_int64)
            for name in ("arena_bytes", "journal_bytes", "n_handed", "reads", "short_gaps", "written")
        ],
    ]


class Ready(NamedTuple):
    """A socket that Python has to look at. data, ns: what was read of it already, and the kernel's instant of it.

    data: None where nothing was; b"" at the end. ns: in CLOCK_MONOTONIC; 0 where the kernel told none. errno: why
    reading failed, 0 where it did not.
    """

    fd: int
    events: int
    data: memoryview | None = None
    ns: int = 0
    errno: int = 0


class StreamSlot:
    """What the compiled reader and Python tell each other of one descriptor."""

    __slots__ = ("_at", "_values")

    def __init__(self, values: memoryview, fd: int) -> None:
        self._values = values
        self._at = fd * _STREAM_FIELDS
        self._values[self._at + _LATEST_NS] = 0
        self.withhold()

    def give(self, request: int, latest_ns: int, most_bytes: int) -> None:
        """From now on the reader reads what comes: the answer to `request`, between two chunks, at most so much.

        latest_ns: when its latest bytes arrived.
        """
        at = self._at
        self._values[at] = request
        self._values[at + _LATEST_NS] = latest_ns
        self._values[at + _READS] = 0
        self._values[at + _BYTES] = 0
        self._values[at + _MOST_BYTES] = most_bytes

    def withhold(self) -> None:
        """From now on Python reads. What was read before stays to be told."""
        self._values[self._at] = _NOBODY

    @property
    def latest_ns(self) -> int:
        """When the latest bytes arrived that the reader has read; 0 where there are none."""
        latest: int = self._values[self._at + _LATEST_NS]
        return latest

    @property
    def reads(self) -> int:
        """How many reads were made since `give`."""
        reads: int = self._values[self._at + _READS]
        return reads

    @property
    def bytes(self) -> int:
        """How much of the body they brought."""
        size: int = self._values[self._at + _BYTES]
        return size


class ChunkReader:
    """Looks at all sockets of an epoll set. What it reads itself is in the journal when a look is over.

    reads, short: of the latest look, how many reads it made, and how many came within gap_ns of the one before.
    """

    def __init__(self, library: Path, journal: Journal, counters: memoryview) -> None:
        self._call = _function(library)
        self._journal = journal
        self._counters = counters
        shared = mmap.mmap(-1, _DESCRIPTORS * _STREAM_FIELDS * 8)  # pages of descriptors in use only
        self._streams = memoryview(shared).cast("q")
        self._arena = memoryview(mmap.mmap(-1, _ARENA_BYTES))
        self._entries = memoryview(mmap.mmap(-1, _ARENA_BYTES))
        self._handed = (_Handed * _MOST_READY)()
        self._look = _Look(
            descriptors=_DESCRIPTORS,
            streams=_address(self._streams),
            handed=ctypes.addressof(self._handed),
            arena=_address(self._arena),
            journal=_address(self._entries),
            arena_bytes=_ARENA_BYTES,
            journal_bytes=_ARENA_BYTES,
        )
        self._argument = ctypes.byref(self._look)
        self.reads = 0
        self.short = 0

    def slot(self, fd: int) -> StreamSlot | None:
        """That of a new descriptor; None where it is beyond those that the reader keeps."""
        return StreamSlot(self._streams, fd) if fd < _DESCRIPTORS else None

    def look(self, epoll: int, now_ns: int, offset_ns: int, longest_ns: int, gap_ns: int) -> Iterator[Ready]:
        """Read what may be read without Python, and tell the rest, whose bytes hold until the next look.

        offset_ns: CLOCK_REALTIME less CLOCK_MONOTONIC. longest_ns: an instant older than that is left to Python.
        """
        look = self._look
        look.epoll, look.now_ns, look.offset_ns = epoll, now_ns, offset_ns
        look.longest_ns, look.gap_ns = longest_ns, gap_ns
        self._call(self._argument)
        if look.written:
            self._journal.add_entries(self._entries[: look.written])
            self._counters[CHUNKS] += look.reads
        self.reads, self.short = look.reads, look.short_gaps
        return map(self._ready, self._handed[: look.n_handed])

    def _ready(self, handed: _Handed) -> Ready:
        if handed.size == _UNREAD:
            return Ready(handed.descriptor, handed.events)
        if handed.size < 0:
            return Ready(handed.descriptor, handed.events, errno=_UNREAD - handed.size)
        data = self._arena[handed.offset : handed.offset + handed.size]
        return Ready(handed.descriptor, handed.events, data, handed.ns)


def compiled_reader() -> Path | None:
    """The reader's library, compiled once for each version of its source; None where nothing compiles or loads it."""
    library = compiled_c(SOURCE, "The reader in Python", ("-shared", "-fPIC"))
    if library is None:
        return None
    try:
        _function(library)
    except (OSError, AttributeError) as error:  # damaged, or in a folder from which nothing may be run
        print(f"{error} The reader in Python takes its place.", file=sys.stderr)
        return None
    return library


def _function(library: Path) -> Any:
    """Raises OSError or AttributeError where this is no such library."""
    # PyDLL: a look is too short to be worth giving up the interpreter's lock and waiting for it again.
    return ctypes.PyDLL(str(library)).look


def _address(memory: memoryview) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))
