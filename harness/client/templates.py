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

    def texts_of(self, lines: list[bytes], start: int) -> list[str]:
        """The texts of the lines from number `start` on, up to the first that is another's or has no text."""
        before, behind, first, last, least = self._before, self._behind, self._first, self._last, self._least
        loads = orjson.loads
        texts: list[str] = []
        for number in range(start, len(lines)):
            line = lines[number]
            if not (line.startswith(before) and line.endswith(behind) and len(line) >= least):
                break
            try:
                text = loads(line[first:last])
            except orjson.JSONDecodeError:
                break
            if not text:
                break
            texts.append(text)
        return texts


def learn_template(line: bytes, chunk: Chunk) -> Template | None:
    """The template of a line, `data: {…}`, that was understood as `chunk`; None where there is more than a text."""
    if not chunk.text or chunk != Chunk(text=chunk.text):
        return None
    other = f"{chunk.text}x"  # stands nowhere else as the text, whatever that is
    quoted = orjson.dumps(other)
    for found in _STRING_VALUE.finditer(line):
        if _string(found[1]) != chunk.text:
            continue
        before, behind = line[: found.start(1)], line[found.end(1) :]
        if behind and read_json((before + quoted + behind).removeprefix(_DATA)) == Chunk(text=other):
            return Template(before + b'"', b'"' + behind)
    return None


def _string(quoted: bytes) -> str:
    """What a JSON string says; "" where it is none."""
    try:
        text: str = orjson.loads(quoted)
    except orjson.JSONDecodeError:
        return ""
    return text
