"""What became of one request: its instants, its text, its tokens, and whether it counts as a success."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson

from harness.client.chunks import count_in, error_of
from harness.client.exchanges import RawExchange
from harness.client.streams import SAMPLE_CHARACTERS, Answer, read_answer


@dataclass(slots=True)
class Outcome:
    """One request after parsing. `error` is None exactly for a success by METRICS; instants in ns.

    answer: what the stream said; empty where none came. ns, reads: int64, one for each event with text or ids: when
    it was complete, and the number of the read that completed it.
    """

    raw: RawExchange
    answer: Answer = field(default_factory=Answer)
    ns: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    reads: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    end_ns: int | None = None
    error: str | None = None
    detail: str | None = None
    done_ns: int | None = None  # arrival of [DONE]

    @property
    def events(self) -> int:
        """How many stream events carried text or ids."""
        return len(self.answer.texts)

    @property
    def text(self) -> str:
        """Everything generated, in order of arrival."""
        return "".join(self.answer.texts)

    def usage_count(self, name: str) -> int | None:
        """A count of the server's last usage record, None if it gave none."""
        return count_in(self.answer.usage, name)

    @property
    def cached_tokens(self) -> int | None:
        """Prompt tokens the server says it found in its prefix cache."""
        details = (self.answer.usage or {}).get("prompt_tokens_details")
        return count_in(details, "cached_tokens") if isinstance(details, dict) else None


def outcome_of(raw: RawExchange) -> Outcome:
    """Parse what was received for one request and judge it."""
    outcome = Outcome(raw, end_ns=raw.end_ns)
    if raw.status == 200 and _is_event_stream(raw):
        answer = outcome.answer = read_answer(raw.body)
        outcome.reads = raw.body.reads_at(answer.ends)
        outcome.ns = raw.body.ns[outcome.reads]
        if answer.done_at is not None:
            outcome.done_ns = int(raw.body.ns[raw.body.reads_at([answer.done_at])[0]])
    error = _judge(outcome)
    if error is not None:
        outcome.error, outcome.detail = error[0], error[1][:SAMPLE_CHARACTERS]
    return outcome


def _judge(outcome: Outcome) -> tuple[str, str] | None:
    """The kind and detail of the error, None for a success."""
    raw, answer = outcome.raw, outcome.answer
    if raw.status is not None and raw.status != 200:
        return _http_error(raw)
    if answer.error is not None:
        return "stream_error", answer.error
    if raw.failure is not None:
        if outcome.done_ns is not None and answer.finish_reason is not None:
            outcome.end_ns = outcome.done_ns
            return None  # all was said; only the connection ended badly
        kind, detail = raw.failure
        if kind == "timeout_token":
            kind = "timeout_between_tokens" if outcome.events else "timeout_first_token"
        return kind, detail
    if not _is_event_stream(raw):
        return _no_stream(raw)
    if answer.finish_reason is None and outcome.done_ns is None:
        return "truncated", "The stream ended without a finish reason and without [DONE]."
    if not outcome.events and answer.finish_reason is None:
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
        error = raw.body.data.decode("utf-8", "replace").strip()
    return str(error)


def _record(raw: RawExchange) -> dict[str, Any] | None:
    try:
        record = orjson.loads(raw.body.data)
    except orjson.JSONDecodeError:
        return None
    return record if isinstance(record, dict) else None
