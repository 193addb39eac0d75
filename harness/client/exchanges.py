"""From the journal to one raw record a request; still nothing of HTTP bodies is understood here."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from harness.client.journal import Kind


@dataclass(slots=True)
class RawExchange:
    """What the client saw of one request. Instants in ns, None where they never came.

    body: (ns, bytes) of each read that brought part of the body. failure: (kind, detail) as the client saw
        it.
    prompt_tokens: as sent, where the body was built from earlier answers.
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


def collect(entries: Iterable[tuple[int, int, int, bytes]]) -> list[RawExchange]:
    """The exchanges in a journal, by request number.

    A request without an end (its client died) is marked as aborted; one that was only prepared is left out.
    """
    found: dict[int, RawExchange] = {}
    for kind, request, ns, payload in entries:
        exchange = found.get(request)
        if exchange is None:
            exchange = found[request] = RawExchange(request)
        if kind == Kind.BODY:
            exchange.body.append((ns, payload))
        elif kind == Kind.SCHEDULED:
            exchange.scheduled_ns = ns
        elif kind == Kind.SENT:
            exchange.sent_ns = ns
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
    for exchange in found.values():
        if exchange.end_ns is None:
            exchange.failure = ("aborted", "The client ended before this request did.")
    return [exchange for _, exchange in sorted(found.items()) if exchange.scheduled_ns is not None]
