"""Lines that differ in one JSON string only: the text that was generated.

An engine's events repeat everything but their text. Where the bytes before and behind it are those of a line that
has been understood, only the string between them is decoded.

Why that is the same as reading the line: a template is learnt by putting another string in the place of a line's
text, and reading the result in full: it must be a chunk with just that text. A JSON value does not depend on what
stands elsewhere, so what holds for that string holds for any other. What stands there in a later line must be a
JSON string itself, from the quote that ends the bytes before it to the quote that begins the bytes behind it.
"""

import re

import orjson

from harness.client.chunks import Chunk, read_json

_DATA = b"data:"
_STRING_VALUE = re.compile(rb':\s*("(?:[^"\\]|\\.)*")')


class Template:
    """The bytes around the text, its quotes included on both sides."""

    __slots__ = ("_before", "_behind", "_first", "_last", "_least")

    def __init__(self, before: bytes, behind: bytes) -> None:
        self._before = before
        self._behind = behind
        self._least = len(before) + len(behind)
        self._first = len(before) - 1
        self._last = 1 - len(behind)

    def text_of(self, line: bytes) -> str:
        """The text of a line like this; "" for a line without text, and for any other line."""
        if not (line.startswith(self._before) and line.endswith(self._behind) and len(line) >= self._least):
            return ""
        try:
            text: str = orjson.loads(line[self._first : self._last])
        except orjson.JSONDecodeError:
            return ""
        return text


def learn_template(line: bytes, chunk: Chunk) -> Template | None:
    """The template of a line, `data: {…}`, that was understood as `chunk`; None where there is more than a text."""
    if not chunk.text or chunk != Chunk(text=chunk.text):
        return None
    other = f"{chunk.text}x"  # stands nowhere else as the text, whatever that is
    quoted = orjson.dumps(other)
    for found in _STRING_VALUE.finditer(line):
        before, behind = line[: found.start(1)], line[found.end(1) :]
        if behind and read_json((before + quoted + behind).removeprefix(_DATA)) == Chunk(text=other):
            return Template(before + b'"', b'"' + behind)
    return None
