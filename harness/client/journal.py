"""The raw record of a run: an append-only journal that spills to disk.

While the clock runs, an entry is one `bytearray` append; a writer thread takes full buffers to the file, so a
slow disk delays nobody. A journal cut off in the middle (a killed process, a full disk) reads up to its last
whole entry.
"""

import mmap
import os
import queue
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path

from harness.core.file_locks import hold

ENTRY = struct.Struct("<BIqI")  # kind, request, instant in ns, length of the payload
_SPILL_BYTES = 1 << 18


class Kind(IntEnum):
    """What happened to a request. Payloads are bytes."""

    SCHEDULED = 1  # instant: when it was due
    SENT = 2  # just before its first byte is written; again after a reconnect
    HEADERS = 3  # payload: status, content type, location, one a line
    BODY = 4  # payload: the bytes of the body that one read brought
    END = 5  # the response is complete
    ERROR = 6  # payload: kind, detail, one a line
    PROMPT = 7  # payload: prompt length in tokens as sent (real history)
    RETRY = 8  # what came so far is void, the request will be sent again; payload: kind of error


class Journal:
    """Writes entries to `path`; `failure` is the reason if the disk refused some."""

    def __init__(self, path: Path) -> None:
        self._buffer = bytearray()
        self._pack = ENTRY.pack
        self._full: queue.SimpleQueue[bytearray | None] = queue.SimpleQueue()
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        hold(self._file)  # as long as somebody writes it
        self.failure: str | None = None
        self._writer = threading.Thread(target=self._write, name="journal", daemon=True)
        self._writer.start()

    def add(self, kind: int, request: int, ns: int, payload: bytes = b"") -> None:
        """Append one entry."""
        buffer = self._buffer
        buffer += self._pack(kind, request, ns, len(payload))
        buffer += payload
        if len(buffer) > _SPILL_BYTES:
            self.flush()

    def add_entries(self, entries: memoryview) -> None:
        """Append whole entries as they are on disk."""
        self._buffer += entries
        if len(self._buffer) > _SPILL_BYTES:
            self.flush()

    def flush(self) -> None:
        """Hand what is buffered to the writer."""
        if self._buffer:
            self._full.put(self._buffer)
            self._buffer = bytearray()

    def close(self) -> None:
        """Write everything and close the file."""
        self.flush()
        self._full.put(None)
        self._writer.join()
        os.close(self._file)

    def _write(self) -> None:
        while (buffer := self._full.get()) is not None:
            if self.failure is not None:
                continue  # after a gap the rest could not be read anyway
            try:
                view = memoryview(buffer)
                while view:
                    view = view[os.write(self._file, view) :]
            except OSError as error:
                self.failure = error.strerror or str(error)


def read_journal(path: Path) -> Iterator[tuple[int, int, int, bytes]]:
    """The entries of `path` in order: (kind, request, ns, payload). A missing file has none."""
    with mapped(path) as data:
        at, end = 0, len(data)
        while at + ENTRY.size <= end:
            kind, request, ns, length = ENTRY.unpack_from(data, at)
            at += ENTRY.size
            if at + length > end:
                return
            yield kind, request, ns, data[at : at + length]
            at += length


@contextmanager
def mapped(path: Path) -> Iterator[mmap.mmap | bytes]:
    """The bytes of a file, not read into memory; none where it is missing or empty."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        yield b""
        return
    with file:
        if os.fstat(file.fileno()).st_size == 0:
            yield b""
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            yield data
