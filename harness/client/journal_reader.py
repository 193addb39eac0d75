"""Reads a journal after the run, request by request, without ever holding it in memory."""

import mmap
from array import array
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from harness.client.journal import ENTRY, mapped

# The same fields as ENTRY, for many entries at once.
_FIELDS = np.dtype([("kind", "u1"), ("request", "<u4"), ("ns", "<i8"), ("length", "<u4")])
_LET_GO_BYTES = 64 << 20


class Entries(NamedTuple):
    """The entries of one request in their order, by column: kinds (uint8), instants (int64, in ns), payloads."""

    kinds: np.ndarray
    ns: np.ndarray
    payloads: list[bytes]


def read_by_request(path: Path) -> Iterator[tuple[int, Entries]]:
    """Each request of `path` in order of its number, with its entries. A missing file has none.

    The file may be larger than memory: 8 bytes are held for each entry, and the entries of one request. Pages of
    the file that have been read are let go from time to time, so they do not add up in this process either.
    """
    with mapped(path) as data:
        starts = _starts(data)
        fields = np.arange(ENTRY.size)
        passed = 0
        for request in sorted(starts):
            at = np.array(starts.pop(request), dtype=np.int64)
            raw = np.frombuffer(data, np.uint8)
            heads = raw[at[:, np.newaxis] + fields].view(_FIELDS)[:, 0]
            del raw  # else the file could not be unmapped
            first = at + ENTRY.size
            end = first + heads["length"]
            payloads = [data[a:b] for a, b in zip(first.tolist(), end.tolist(), strict=True)]
            yield request, Entries(heads["kind"], heads["ns"], payloads)
            passed += int(end[-1] - at[0])
            if passed > _LET_GO_BYTES:
                passed = 0
                _let_go(data)


def _starts(data: mmap.mmap | bytes) -> "dict[int, array[int]]":
    """Where each request's entries begin, those that are whole."""
    starts: dict[int, array[int]] = defaultdict(lambda: array("q"))
    at, end = 0, len(data)
    size, unpack = ENTRY.size, ENTRY.unpack_from
    let_go = _LET_GO_BYTES
    while at + size <= end:
        _, request, _, length = unpack(data, at)
        following = at + size + length
        if following > end:
            break
        starts[request].append(at)
        at = following
        if at > let_go:
            let_go = at + _LET_GO_BYTES
            _let_go(data)
    return starts


def _let_go(data: mmap.mmap | bytes) -> None:
    """Give the mapped pages back; what is read again comes from the system's cache or the disk."""
    if isinstance(data, mmap.mmap):
        data.madvise(mmap.MADV_DONTNEED)
