"""From the journal to one raw record a request; still nothing of HTTP bodies is understood here."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate, compress
from pathlib import Path

import numpy as np

from harness.client.journal import Kind
from harness.client.journal_reader import Entries, read_by_request


@dataclass(frozen=True, slots=True, eq=False)
class Body:
    """The body of an answer whole, and how it came.

    ns, ends: int64, one a read: the instant it arrived, and the offset in `data` behind its last byte.
    """

    data: bytes
    ns: np.ndarray
    ends: np.ndarray

    @classmethod
    def of(cls, ns: Iterable[int], pieces: list[bytes]) -> "Body":
        """From the bytes of each read, in order."""
        ends = np.fromiter(accumulate(map(len, pieces)), np.int64, len(pieces))
        return cls(b"".join(pieces), np.asarray(ns, dtype=np.int64), ends)

    def reads_at(self, offsets: list[int]) -> np.ndarray:
        """For each offset the number of the read, from 0, with which as many bytes were there."""
        return np.searchsorted(self.ends, np.array(offsets, dtype=np.int64))


@dataclass(slots=True)
class RawExchange:
    """What the client saw of one request. Instants in ns, None where they never came.

    failure: (kind, detail) as the client saw it.
    prompt_tokens: as sent, where the body was built from earlier answers.
    retries: how often it was sent again after an error; sent_ns stays that of the first time, the rest is the
        last try's.
    """

    request: int
    scheduled_ns: int | None = None
    sent_ns: int | None = None
    headers_ns: int | None = None
    end_ns: int | None = None
    status: int | None = None
    content_type: str = ""
    location: str = ""
    body: Body = field(default_factory=lambda: Body.of([], []))
    failure: tuple[str, str] | None = None
    prompt_tokens: int | None = None
    retries: int = 0


def collect(entries: Iterable[tuple[int, int, int, bytes]]) -> list[RawExchange]:
    """The exchanges in a journal, by request number.

    A request without an end (its client died) is marked as aborted; one that was only prepared is left out.
    """
    grouped: dict[int, list[tuple[int, int, bytes]]] = {}
    for kind, request, ns, payload in entries:
        grouped.setdefault(request, []).append((kind, ns, payload))
    columns = ((request, zip(*rows, strict=True)) for request, rows in sorted(grouped.items()))
    return list(
        _exchanges(
            (request, Entries(np.array(kinds, np.uint8), np.array(ns, np.int64), list(payloads)))
            for request, (kinds, ns, payloads) in columns
        )
    )


def stored_exchanges(path: Path) -> Iterator[RawExchange]:
    """The same from a journal's file, one after the other, so that no more than one is in memory."""
    return _exchanges(read_by_request(path))


def _exchanges(grouped: Iterable[tuple[int, Entries]]) -> Iterator[RawExchange]:
    for request, entries in grouped:
        exchange = RawExchange(request)
        reads = entries.kinds == Kind.BODY
        for at in np.flatnonzero(~reads).tolist():
            kind = int(entries.kinds[at])
            _note(exchange, kind, int(entries.ns[at]), entries.payloads[at])
            if kind == Kind.RETRY:  # what came so far is void
                reads[:at] = False
        pieces = list(compress(entries.payloads, reads.tolist()))
        exchange.body = Body.of(entries.ns[reads], pieces)
        if exchange.end_ns is None:
            exchange.failure = ("aborted", "The client ended before this request did.")
        if exchange.scheduled_ns is not None:
            yield exchange


def _note(exchange: RawExchange, kind: int, ns: int, payload: bytes) -> None:
    if kind == Kind.SCHEDULED:
        exchange.scheduled_ns = ns
    elif kind == Kind.SENT:
        if not exchange.retries or exchange.sent_ns is None:
            exchange.sent_ns = ns
    elif kind == Kind.RETRY:
        exchange.retries += 1
        exchange.headers_ns = exchange.status = None
        exchange.content_type = exchange.location = ""
    elif kind == Kind.HEADERS:
        status, content_type, location = payload.decode("latin-1").split("\n", 2)
        exchange.headers_ns, exchange.status = ns, int(status)
        exchange.content_type, exchange.location = content_type, location
    elif kind == Kind.END:
        exchange.end_ns = ns
    elif kind == Kind.ERROR:
        name, _, detail = payload.decode("utf-8", "replace").partition("\n")
        exchange.end_ns, exchange.failure = ns, (name, detail)
    elif kind == Kind.PROMPT:
        exchange.prompt_tokens = int(payload)
