"""What one event of an OpenAI stream says, completions and chat alike."""

import json
from dataclasses import dataclass, field
from typing import Any

import orjson

from harness.client.sse import EventStreamParser, ServerEvent

_MOST_COUNTED = 2**31  # a server's count above this is no count of tokens
_GIVEN_UP = ("error", "abort")  # finish reasons by which engines say that they failed
# String fields of a delta that are no generated text.
_NO_TEXT = frozenset({"role", "name", "id", "tool_call_id", "obfuscation"})


@dataclass(slots=True)
class Chunk:
    """One event. text and ids are what was generated; a role-only or empty delta has neither.

    error: the server's own words where it reports one inside the stream. done: the closing [DONE].
    unexpected: no event of this API.
    """

    text: str = ""
    ids: tuple[int, ...] = ()
    finish_reason: str | None = None
    usage: dict[str, Any] | None = None
    error: str | None = None
    done: bool = False
    unexpected: bool = False

    @property
    def carries_tokens(self) -> bool:
        """Whether it brings generated text or token ids."""
        return bool(self.text or self.ids)


@dataclass(slots=True)
class StreamContent:
    """A whole stream, put together."""

    text: str = ""
    ids: list[int] = field(default_factory=list)
    error: str | None = None


def read_stream(body: bytes) -> StreamContent:
    """Text, ids and error of a complete body; instants do not matter here."""
    content = StreamContent()
    for event in EventStreamParser().feed(0, body):
        chunk = read_chunk(event)
        content.text += chunk.text
        content.ids += chunk.ids
        content.error = content.error or chunk.error
    return content


def read_chunk(event: ServerEvent) -> Chunk:
    """Understand one event; never raises."""
    data = event.data
    if data.strip() == "[DONE]":
        return Chunk(done=True)
    try:
        record = _decoded(data)
    except (ValueError, RecursionError):
        if event.type == "error":
            return Chunk(error=data)
        return Chunk(unexpected=True)
    if event.type == "error" and isinstance(record, dict):
        return Chunk(error=error_of(record) or data)
    return _read_message(record)


def read_json(data: bytes) -> Chunk | None:
    """What `read_chunk` says of an event of type message with this data; None where it is no JSON by the book.

    It saves the decoding of UTF-8 and the event. None: see what `read_chunk` makes of it.
    """
    try:
        record = orjson.loads(data)
    except orjson.JSONDecodeError:
        return None
    return _read_message(record)


def _read_message(record: Any) -> Chunk:
    if not isinstance(record, dict):
        return Chunk(unexpected=True)
    if (error := error_of(record)) is not None:
        return Chunk(error=error)
    return _read_record(record)


def count_in(record: dict[str, Any] | None, name: str) -> int | None:
    """A count in a usage record; None where it is missing or can be none."""
    value = record.get(name) if record else None
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value < _MOST_COUNTED else None


def error_of(record: dict[str, Any]) -> str | None:
    """The message of an error object, in any of the forms that servers send; None if there is none."""
    error = record.get("error")
    if not error:
        if record.get("object") != "error":
            return None
        error = record
    if isinstance(error, dict):
        message = error.get("message") or error.get("detail") or error.get("type")
        return str(message) if message else orjson.dumps(error).decode()
    return str(error)


def _read_record(record: dict[str, Any]) -> Chunk:
    chunk = Chunk()
    usage = record.get("usage")
    if isinstance(usage, dict):
        chunk.usage = usage
    choices = record.get("choices")
    if not isinstance(choices, list) or not all(isinstance(choice, dict) for choice in choices):
        chunk.unexpected = chunk.usage is None
        return chunk
    if not choices:
        return chunk  # usage, or an empty first chunk
    ours = [choice for choice in choices if choice.get("index") in (0, None)]
    chunk.unexpected = len(ours) < len(choices)  # one answer was asked for, and it is number 0
    for choice in ours:
        _read_choice(choice, chunk)
    return chunk


def _read_choice(choice: dict[str, Any], chunk: Chunk) -> None:
    text = choice.get("text")
    delta = choice.get("delta")
    if not isinstance(delta, dict):
        delta = choice.get("message")  # a server that answers a stream request in one piece
    if isinstance(text, str):
        chunk.text += text
    elif isinstance(delta, dict):
        text = _delta_text(delta)
        chunk.text += text
        chunk.unexpected |= not text and _strange(delta)
    ids = choice.get("token_ids")
    if isinstance(ids, list) and all(isinstance(token, int) for token in ids):
        chunk.ids += tuple(ids)
    reason = choice.get("finish_reason")
    if isinstance(reason, str) and reason:
        chunk.finish_reason = reason
        if reason in _GIVEN_UP:
            chunk.error = f"The server gave up with finish_reason={reason}."


def _delta_text(delta: dict[str, Any]) -> str:
    """All generated text of a delta: reasoning, content, refusal and the arguments of calls."""
    reasoning = delta.get("reasoning_content") or delta.get(
        "reasoning"
    )  # two names of one thing: some send both
    parts = [_words(reasoning), _words(delta.get("content")), _words(delta.get("refusal"))]
    calls = delta.get("tool_calls")
    functions = (
        [call.get("function") for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
    )
    for function in [*functions, delta.get("function_call")]:  # the latter is what tool_calls replaced
        if isinstance(function, dict):
            arguments = function.get("arguments")
            whole = isinstance(arguments, dict) and arguments  # some send the object itself, at once
            parts.append(json.dumps(arguments) if whole else _words(arguments))
    return "".join(parts)


def _words(value: Any) -> str:
    """A text, or the texts of a list of content parts, nested ones too (reasoning between the lines)."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        return ""
    parts = (part for part in value if isinstance(part, dict))
    return "".join(_words(part.get("text") or part.get("thinking")) for part in parts)


def _strange(delta: dict[str, Any]) -> bool:
    """Whether a delta without a text that we know brings one under a name that we do not."""
    known = ("content", "reasoning", "reasoning_content", "refusal")
    return any(
        isinstance(value, str) and value and name not in _NO_TEXT and name not in known
        for name, value in delta.items()
    )


def _decoded(data: str) -> Any:
    """JSON as servers send it: also NaN and Infinity, and half surrogate pairs, as Python writes them."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return _encodable(json.loads(data))


def _encodable(value: Any) -> Any:
    """The same with each half of a surrogate pair replaced: it is no character, and no table can hold it."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_encodable(part) for part in value]
    if isinstance(value, dict):
        return {_encodable(name): _encodable(part) for name, part in value.items()}
    return value
