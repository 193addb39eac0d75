"""From the journal to one raw record a request; still nothing of HTTP bodies is understood here."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from harness.client.journal import Kind, read_by_request

_BODY = int(Kind.BODY)


@dataclass(slots=True)
class RawExchange:
    """What the client saw of one request. Instants in ns, None where they never came.

    body: (ns, bytes) of each read that brought part of the body. failure: (kind, detail) as the client saw
        it.
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
    body: list[tuple[int, bytes]] = field(default_factory=list)
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
    return list(_exchanges(sorted(grouped.items())))


def stored_exchanges(path: Path) -> Iterator[RawExchange]:
    """The same from a journal's file, one after the other, so that no more than one is in memory."""
    return _exchanges(read_by_request(path))


def _exchanges(grouped: Iterable[tuple[int, list[tuple[int, int, bytes]]]]) -> Iterator[RawExchange]:
    for request, entries in grouped:
        exchange = RawExchange(request)
        for kind, ns, payload in entries:
            if kind == _BODY:
                exchange.body.append((ns, payload))
            else:
                _note(exchange, kind, ns, payload)
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
        exchange.body = []
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
