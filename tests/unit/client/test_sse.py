"""The event-stream parser against a slow reading of the standard that takes the whole text at once."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.client.sse import EventStreamParser, ServerEvent


def whole(stream: bytes) -> list[tuple[str, str, str]]:
    """(type, data, id) of every event, straight from the standard's grammar and its rules of interpretation."""
    text = stream.decode("utf-8", "replace").removeprefix("\ufeff")
    lines = re.split("\r\n|\r|\n", text)[:-1]  # the last piece has no line end
    events: list[tuple[str, str, str]] = []
    data, kind, last_id = "", "", ""
    for line in lines:
        if line == "":
            if data:
                events.append((kind or "message", data[:-1], last_id))
            data, kind = "", ""
            continue
        name, _, value = line.partition(":") if ":" in line else (line, "", "")
        if value.startswith(" "):
            value = value[1:]
        if name == "data":
            data += value + "\n"
        elif name == "event":
            kind = value
        elif name == "id" and "\0" not in value:
            last_id = value
    return events


def parse(pieces: list[bytes]) -> list[ServerEvent]:
    parser = EventStreamParser()
    return [event for number, piece in enumerate(pieces) for event in parser.feed(number * 10, piece)]


def shown(events: list[ServerEvent]) -> list[tuple[str, str, str]]:
    return [(event.type, event.data, event.id) for event in events]


LINES = st.one_of(
    st.sampled_from(
        [
            "",
            "",
            "data: [DONE]",
            'data: {"a": "ü🙂"}',
            "data",
            "data:",
            "data:  two",
            ": ping",
            ":",
            "event: x",
            "event",
        ]
    ),
    st.sampled_from(
        ["id: 7", "id", "id: a\0b", "retry: 10", "retry: x", "unknown: y", "datax: no", " data: no"]
    ),
    st.builds("{}:{}".format, st.sampled_from(["data", "event", "id", "", "x"]), st.text(max_size=6)),
)
STREAMS = st.builds(
    lambda bom, lines, end: (
        (b"\xef\xbb\xbf" if bom else b"")
        + "".join(line.replace("\n", "").replace("\r", "") + ending for line, ending in lines).encode()
        + end
    ),
    st.booleans(),
    st.lists(st.tuples(LINES, st.sampled_from(["\n", "\r", "\r\n", "\n\n"])), max_size=12),
    st.sampled_from([b"", b"data: cut", b"\xff\n\n", b"data: \xe6\x97\n\n"]),
)


@given(stream=st.one_of(STREAMS, st.binary(max_size=60)), cuts=st.lists(st.integers(0, 400), max_size=8))
def test_any_split_gives_the_events_of_the_whole(stream: bytes, cuts: list[int]) -> None:
    at = sorted(min(cut, len(stream)) for cut in cuts)
    pieces = [stream[a:b] for a, b in zip([0, *at], [*at, len(stream)], strict=True)]
    assert shown(parse(pieces)) == whole(stream)


@given(stream=STREAMS)
def test_bytes_one_by_one(stream: bytes) -> None:
    assert shown(parse([bytes([byte]) for byte in stream])) == whole(stream)


@given(stream=STREAMS)
def test_an_event_belongs_to_the_read_that_completed_it(stream: bytes) -> None:
    """With a byte a read, the event's read is the first prefix of the stream that holds it."""
    for number, event in enumerate(parse([bytes([byte]) for byte in stream])):
        read, beyond = divmod(event.at, 10)
        assert beyond == 0
        assert len(whole(stream[: read + 1])) == number + 1
        assert len(whole(stream[:read])) == number


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data: a\n\n", [("message", "a", "")]),
        (b"data: a\r\rdata: b\r\n\r\n", [("message", "a", ""), ("message", "b", "")]),
        (b"data: a\ndata: b\n\n", [("message", "a\nb", "")]),
        (b"data\n\n", [("message", "", "")]),
        (b"event: x\n\ndata: a\n\n", [("message", "a", "")]),  # a type without data is forgotten
        (b"event: x\ndata: a\nid: 1\n\ndata: b\n\n", [("x", "a", "1"), ("message", "b", "1")]),
        (b"data: a\n", []),  # not ended by a blank line
        (b"\xef\xbb\xbf\xef\xbb\xbfdata: a\n\n", []),  # only one byte order mark is skipped
        (b": comment\n\n", []),
    ],
)
def test_the_standard_by_example(stream: bytes, events: list[tuple[str, str, str]]) -> None:
    assert shown(parse([stream])) == events == whole(stream)


def test_what_else_a_stream_says() -> None:
    parser = EventStreamParser()
    parser.feed(0, b"retry: 250\nretry: soon\n: one\n:two\n")
    assert parser.retry_ms == 250 and parser.comments == 2


def test_what_the_standard_throws_away_is_counted() -> None:
    parser = EventStreamParser()
    parser.feed(0, b'{"error": "no"}\ndata: a\n\nfoo: bar\ndata: b\nda')
    assert (parser.ignored, parser.ignored_sample) == (2, '{"error": "no"}')
    assert parser.unfinished == "data: b\nda"
    parser.feed(0, b"ta: c\n\n")
    assert parser.unfinished == ""
