"""Recorded conversations, in the two formats that people have: ShareGPT JSON and OpenAI-messages JSONL."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import orjson

from harness.core.errors import UsageError
from workloads.corpus import Document, Exchange, json_lines, read_text

# What the two formats call the two who speak; all other roles (system, tool) are left out.
_USER = ("user", "human")
_ASSISTANT = ("assistant", "gpt", "chatgpt", "bard", "model")

Conversation = tuple[Exchange, ...]


def read_sharegpt(path: Path, max_characters: int) -> tuple[Conversation, ...]:
    """A JSON list of `{"conversations": [{"from": "human", "value": …}, …]}`. Raises UsageError."""
    try:
        entries = orjson.loads(read_text(path))
    except orjson.JSONDecodeError as error:
        raise UsageError(f"{path} is no valid JSON ({error}). ShareGPT files hold one JSON list.") from error
    if not isinstance(entries, list):
        raise UsageError(f"{path} holds no JSON list. ShareGPT files hold one list of conversations.")
    numbered = ((f"{path} entry {number}", entry) for number, entry in enumerate(entries, 1))
    return _read(numbered, "conversations", "from", "value", max_characters)


def read_messages(path: Path, max_characters: int) -> tuple[Conversation, ...]:
    """A JSONL file of `{"messages": [{"role": "user", "content": …}, …]}`. Raises UsageError."""
    numbered = ((f"{path} line {number}", entry) for number, entry in json_lines(path))
    return _read(numbered, "messages", "role", "content", max_characters)


def document_of(index: int, conversation: Conversation) -> Document:
    """The text of a conversation as one document."""
    text = "\n\n".join(part for exchange in conversation for part in (exchange.user, exchange.assistant))
    return Document(f"conversation {index}", text)


def _read(
    entries: Iterable[tuple[str, Any]], list_key: str, role_key: str, text_key: str, max_characters: int
) -> tuple[Conversation, ...]:
    found: list[Conversation] = []
    characters = 0
    for place, entry in entries:
        if characters >= max_characters:
            break
        try:
            spoken = [(message[role_key], message[text_key]) for message in entry[list_key]]
        except (KeyError, TypeError) as error:
            raise UsageError(
                f"{place}: expected {{{list_key!r}: [{{{role_key!r}: …, {text_key!r}: …}}, …]}} ({error!r})."
            ) from error
        conversation = _exchanges(spoken)
        if conversation:
            found.append(conversation)
            characters += sum(len(exchange.user) + len(exchange.assistant) for exchange in conversation)
    return tuple(found)


def _exchanges(spoken: list[tuple[Any, Any]]) -> Conversation:
    """Pairs of a user's text and the answer after it; what has no partner or no text is left out."""
    exchanges: list[Exchange] = []
    waiting: str | None = None
    for role, text in spoken:
        if not isinstance(text, str) or not text.strip():
            continue
        if role in _USER:
            waiting = text.strip()
        elif role in _ASSISTANT and waiting is not None:
            exchanges.append(Exchange(waiting, text.strip()))
            waiting = None
    return tuple(exchanges)
