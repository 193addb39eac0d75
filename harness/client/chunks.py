"""What one event of an OpenAI stream says, completions and chat alike."""

from dataclasses import dataclass, field
from typing import Any

import orjson

from harness.client.sse import EventStreamParser, ServerEvent

_GIVEN_UP = ("error", "abort")  # finish reasons by which engines say that they failed


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
        record = orjson.loads(data)
    except orjson.JSONDecodeError:
        if event.type == "error":
            return Chunk(error=data)
        return Chunk(unexpected=True)
    if not isinstance(record, dict):
        return Chunk(unexpected=True)
    if (error := error_of(record)) is not None or event.type == "error":
        return Chunk(error=error or data)
    return _read_record(record)


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
    choice = choices[0]
    if len(choices) > 1 or choice.get("index", 0) != 0:
        chunk.unexpected = True  # one answer was asked for
        return chunk
    chunk.text = _text(choice)
    ids = choice.get("token_ids")
    if isinstance(ids, list) and all(isinstance(token, int) for token in ids):
        chunk.ids = tuple(ids)
    reason = choice.get("finish_reason")
    if isinstance(reason, str) and reason:
        chunk.finish_reason = reason
        if reason in _GIVEN_UP:
            chunk.error = f"The server gave up with finish_reason={reason}."
    return chunk


def _text(choice: dict[str, Any]) -> str:
    """All generated text of a choice: its text, or content, reasoning, refusal and tool-call arguments."""
    text = choice.get("text")
    if isinstance(text, str):
        return text
    delta = choice.get("delta")
    if not isinstance(delta, dict):
        delta = choice.get("message")  # a server that answers a stream request in one piece
        if not isinstance(delta, dict):
            return ""
    reasoning = delta.get("reasoning_content") or delta.get(
        "reasoning"
    )  # two names of one thing: some send both
    parts = [reasoning, delta.get("content"), delta.get("refusal")]
    calls = delta.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict):
            parts.append(function.get("arguments"))
    return "".join(part for part in parts if isinstance(part, str))
