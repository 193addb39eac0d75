"""What became of one request: its instants, its text, its tokens, and whether it counts as a success."""

from dataclasses import dataclass, field
from typing import Any

import orjson

from harness.client.chunks import Chunk, error_of, read_chunk
from harness.client.exchanges import RawExchange
from harness.client.sse import EventStreamParser

SAMPLE_CHARACTERS = 500
_MOST_COUNTED = 2**31  # a server's count above this is no count of tokens


@dataclass(slots=True)
class TextEvent:
    """A stream event that carried text or ids; `usage_tokens` is the running count it stated, if it did."""

    ns: int
    read: int
    text: str
    ids: tuple[int, ...]
    usage_tokens: int | None


@dataclass(slots=True)
class Outcome:
    """One request after parsing. `error` is None exactly for a success by METRICS; instants in ns."""

    raw: RawExchange
    events: list[TextEvent] = field(default_factory=list)
    end_ns: int | None = None
    error: str | None = None
    detail: str | None = None
    finish_reason: str | None = None
    done_ns: int | None = None  # arrival of [DONE]
    usage: dict[str, Any] | None = None
    unexpected: int = 0
    unexpected_sample: str | None = None

    @property
    def text(self) -> str:
        """Everything generated, in order of arrival."""
        return "".join(event.text for event in self.events)

    @property
    def reads(self) -> int:
        """Socket reads that completed at least one event with text."""
        return len({event.read for event in self.events})

    def usage_count(self, name: str) -> int | None:
        """A count of the server's last usage record, None if it gave none."""
        return _count(self.usage, name)

    @property
    def cached_tokens(self) -> int | None:
        """Prompt tokens the server says it found in its prefix cache."""
        details = (self.usage or {}).get("prompt_tokens_details")
        return _count(details, "cached_tokens") if isinstance(details, dict) else None


def outcome_of(raw: RawExchange) -> Outcome:
    """Parse what was received for one request and judge it."""
    outcome = Outcome(raw, end_ns=raw.end_ns)
    stream_error: str | None = None
    if raw.status == 200 and _is_event_stream(raw):
        stream_error = _read_stream(outcome)
    error = _judge(outcome, stream_error)
    if error is not None:
        outcome.error, outcome.detail = error[0], error[1][:SAMPLE_CHARACTERS]
    return outcome


def _read_stream(outcome: Outcome) -> str | None:
    parser = EventStreamParser()
    error: str | None = None
    for ns, data in outcome.raw.body:
        for event in parser.feed(ns, data):
            chunk = read_chunk(event)
            _take(outcome, chunk, ns, event.read)
            if error is None:
                error = chunk.error
            if chunk.unexpected:
                _surprise(outcome, 1, event.data)
    _surprise(outcome, parser.ignored, parser.ignored_sample or "")
    _surprise(outcome, bool(parser.unfinished), parser.unfinished)
    return error


def _surprise(outcome: Outcome, times: int, sample: str) -> None:
    """Count what nobody expected and keep the first of it, bounded."""
    outcome.unexpected += times
    if times and outcome.unexpected_sample is None:
        outcome.unexpected_sample = sample[:SAMPLE_CHARACTERS]


def _take(outcome: Outcome, chunk: Chunk, ns: int, read: int) -> None:
    if chunk.usage is not None:
        outcome.usage = chunk.usage
    if chunk.finish_reason is not None:
        outcome.finish_reason = chunk.finish_reason
    if chunk.done and outcome.done_ns is None:
        outcome.done_ns = ns
    if chunk.carries_tokens:
        stated = _count(chunk.usage, "completion_tokens") if chunk.usage is not None else None
        outcome.events.append(TextEvent(ns, read, chunk.text, chunk.ids, stated))


def _judge(outcome: Outcome, stream_error: str | None) -> tuple[str, str] | None:
    """The kind and detail of the error, None for a success."""
    raw = outcome.raw
    if raw.status is not None and raw.status != 200:
        return _http_error(raw)
    if stream_error is not None:
        return "stream_error", stream_error
    if raw.failure is not None:
        if outcome.done_ns is not None and outcome.finish_reason is not None:
            outcome.end_ns = outcome.done_ns
            return None  # all was said; only the connection ended badly
        kind, detail = raw.failure
        if kind == "timeout_token":
            kind = "timeout_between_tokens" if outcome.events else "timeout_first_token"
        return kind, detail
    if not _is_event_stream(raw):
        return _no_stream(raw)
    if outcome.finish_reason is None and outcome.done_ns is None:
        return "truncated", "The stream ended without a finish reason and without [DONE]."
    if not outcome.events and outcome.finish_reason is None:
        return "empty", "The stream held neither a token nor a finish reason."
    return None


def _http_error(raw: RawExchange) -> tuple[str, str]:
    detail = _message(raw)
    if raw.location:
        detail = f"redirected to {raw.location}"
    return f"http_{raw.status}", detail


def _no_stream(raw: RawExchange) -> tuple[str, str]:
    body = _record(raw)
    error = error_of(body) if body is not None else None
    if error is not None:
        return "stream_error", error
    named = raw.content_type or "no content type"
    return "bad_content_type", f"An event stream was asked for and {named} came: {_message(raw)}"


def _is_event_stream(raw: RawExchange) -> bool:
    return raw.content_type.partition(";")[0].strip().lower() == "text/event-stream"


def _message(raw: RawExchange) -> str:
    record = _record(raw)
    error = None
    if record is not None:
        error = error_of(record) or record.get("detail") or record.get("message")
    if error is None:
        error = b"".join(data for _, data in raw.body).decode("utf-8", "replace").strip()
    return str(error)


def _record(raw: RawExchange) -> dict[str, Any] | None:
    try:
        record = orjson.loads(b"".join(data for _, data in raw.body))
    except orjson.JSONDecodeError:
        return None
    return record if isinstance(record, dict) else None


def _count(record: dict[str, Any] | None, name: str) -> int | None:
    value = (record or {}).get(name)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value < _MOST_COUNTED else None
