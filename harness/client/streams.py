"""A whole recorded event stream at once, by columns: nothing is kept for an event but what it said.

Nearly every event is one line, `data: {…}`, between blank lines, and differs from the one before in its text
alone. So there are two short ways past the general parser, and each takes only what it can prove that the
general one would have understood alike:

1. An event of the same bytes around its text as an earlier one: only the text is decoded (`templates`).
2. An event of one `data` line: its JSON is decoded without the parser of event streams.
3. Everything else: `sse` and `chunks`, in full.
"""

from dataclasses import dataclass, field
from typing import Any

from harness.client.chunks import Chunk, count_in, read_chunk, read_json
from harness.client.exchanges import Body
from harness.client.sse import EventStreamParser
from harness.client.templates import Template, learn_template

SAMPLE_CHARACTERS = 500
_DATA = b"data:"
_MOST_LEARNED = 8  # attempts a stream: one whose events differ in more than their text is not worth more


@dataclass(slots=True)
class Answer:
    """What a stream said. Offsets are into the body: behind the byte with which something was complete.

    texts, ends: of each event that carried text or ids, in order, its text and its offset. ids, stated: the
    number of token ids it brought, the running count of tokens that it stated, by its position in `texts`,
    for those that did. error: the server's own words, the first of them. done_at: of the closing [DONE].
    """

    texts: list[str] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    ids: dict[int, int] = field(default_factory=dict)
    stated: dict[int, int] = field(default_factory=dict)
    error: str | None = None
    finish_reason: str | None = None
    done_at: int | None = None
    usage: dict[str, Any] | None = None
    unexpected: int = 0
    unexpected_sample: str | None = None

    def take(self, chunk: Chunk, at: int, data: str = "") -> None:
        """Add one event; `data` is what a sample of the unexpected is taken from."""
        if chunk.usage is not None:
            self.usage = chunk.usage
        if chunk.finish_reason is not None:
            self.finish_reason = chunk.finish_reason
        if chunk.done and self.done_at is None:
            self.done_at = at
        if chunk.carries_tokens:
            if chunk.ids:
                self.ids[len(self.texts)] = len(chunk.ids)
            if (stated := count_in(chunk.usage, "completion_tokens")) is not None:
                self.stated[len(self.texts)] = stated
            self.texts.append(chunk.text)
            self.ends.append(at)
        if self.error is None:
            self.error = chunk.error
        if chunk.unexpected:
            self.surprise(1, data)

    def surprise(self, times: int, sample: str) -> None:
        """Count what nobody expected and keep the first of it, bounded."""
        self.unexpected += times
        if times and self.unexpected_sample is None:
            self.unexpected_sample = sample[:SAMPLE_CHARACTERS]


def read_answer(body: Body) -> Answer:
    """Understand a whole body; never raises."""
    answer = Answer()
    parser = EventStreamParser()
    eol = _line_end(body.data)
    if eol is None:
        _read_in_full(body, parser, answer)
    else:
        _read_by_events(body.data, eol, parser, answer)
    answer.surprise(parser.ignored, parser.ignored_sample or "")
    answer.surprise(bool(parser.unfinished), parser.unfinished)
    return answer


def _line_end(data: bytes) -> bytes | None:
    """What ends every line of a stream: LF or CRLF; None where it is a lone CR, or not always the same."""
    if b"\r" not in data:
        return b"\n"
    pairs = data.count(b"\r\n")
    return b"\r\n" if data.count(b"\r") == data.count(b"\n") == pairs else None


def _read_in_full(body: Body, parser: EventStreamParser, answer: Answer) -> None:
    start = 0
    for end in body.ends.tolist():
        for event in parser.feed(end, body.data[start:end]):
            answer.take(read_chunk(event), event.at, event.data)
        start = end


def _read_by_events(data: bytes, eol: bytes, parser: EventStreamParser, answer: Answer) -> None:
    """Read a stream whose lines all end alike, in the pieces that blank lines make of it.

    Behind a blank line the parser of event streams is where it was at the beginning (but for the byte order
    mark, which only the first piece may have), so that each piece can be understood by itself, and holds one
    event at most, complete with the first byte of the blank line's end.
    """
    blank = eol + eol
    *pieces, rest = data.split(blank)
    at, completed_by, beyond = 0, len(eol) + 1, len(blank)
    template: Template | None = None
    attempts = 0
    number = 0
    while number < len(pieces):
        if template is not None:
            texts = template.texts_of(pieces, number)
            answer.texts += texts
            for piece in pieces[number : number + len(texts)]:
                answer.ends.append(at + len(piece) + completed_by)
                at += len(piece) + beyond
            number += len(texts)
            if number == len(pieces):
                break
        piece = pieces[number]
        complete = at + len(piece) + completed_by
        if at and (chunk := _one_line(piece)) is not None:
            answer.take(chunk, complete)
            if attempts < _MOST_LEARNED and chunk.text:
                attempts += 1
                template = learn_template(piece, chunk) or template
        else:
            for event in parser.feed(complete, piece + blank):
                answer.take(read_chunk(event), complete, event.data)
        at += len(piece) + beyond
        number += 1
    parser.feed(len(data), rest)


def _one_line(piece: bytes) -> Chunk | None:
    """The chunk of an event that is one line of data, if it is JSON by the book and not unexpected."""
    if not piece.startswith(_DATA) or b"\n" in piece:
        return None
    chunk = read_json(piece.removeprefix(_DATA))
    return None if chunk is None or chunk.unexpected else chunk
