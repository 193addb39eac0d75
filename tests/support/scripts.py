"""What the scripted server does with one request, as data that travels as JSON."""

import base64
from dataclasses import asdict, dataclass, fields
from dataclasses import field as listed
from typing import Any

WORD = " word"  # one token of the embedded model, wherever it stands


@dataclass
class Script:
    """The answer to one request. Times in ms.

    headers_ms: from the request's end to status and headers. ttft_ms: from there to the first token.
    itl_ms: between two events with tokens. tokens: how many (None: the request's max_tokens); texts: their texts,
    repeated as needed. per_event: tokens in one event. field: of a chat delta (content, reasoning, …, tool).
    role_first: a role-only chunk with the headers. usage: none, last or every. token_ids: None for as asked.
    finish: with_last, separate or none. done: close with [DONE].
    error_after, cut_after, stall_after: after so many tokens an error object, a broken connection, or silence.
    status, body, content_type, location: an answer that is no stream where status is not 200 or body is given.
    pieces: raw body bytes instead of a stream, each a (wait in ms, base64) written by itself.
    framing: chunked, length or close. announce_close: say `Connection: close` and do so.
    vanish: close the connection without having announced it, "unanswered" (the request was read) or "after" the
        answer, as servers do with connections kept too long.
    """

    headers_ms: float = 0.0
    ttft_ms: float = 5.0
    itl_ms: float = 1.0
    tokens: int | None = None
    texts: list[str] = listed(default_factory=lambda: [WORD])
    per_event: int = 1
    field: str = "content"
    role_first: bool = False
    usage: str = "last"
    token_ids: bool | None = None
    finish: str = "with_last"
    done: bool = True
    error_after: int | None = None
    cut_after: int | None = None
    stall_after: int | None = None
    status: int = 200
    body: str | None = None
    content_type: str = "text/event-stream; charset=utf-8"
    location: str | None = None
    pieces: list[tuple[float, str]] | None = None
    framing: str = "chunked"
    announce_close: bool = False
    vanish: str | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> "Script":
        known = {entry.name for entry in fields(cls)}
        unknown = set(record) - known
        if unknown:
            raise ValueError(f"a script knows no {sorted(unknown)}; it knows {sorted(known)}")
        return cls(**record)


def piece(data: bytes | str, wait_ms: float = 2.0) -> tuple[float, str]:
    """One raw write of a body."""
    raw = data.encode() if isinstance(data, str) else data
    return wait_ms, base64.b64encode(raw).decode()
