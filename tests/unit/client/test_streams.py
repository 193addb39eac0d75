"""The short ways through a stream against the long one: the parser of event streams, read by read."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.client.chunks import Chunk, read_chunk, read_json
from harness.client.exchanges import Body
from harness.client.sse import EventStreamParser
from harness.client.streams import Answer, read_answer
from harness.client.templates import learn_template
from tests.support.wire import split


def in_full(pieces: list[bytes]) -> Answer:
    """Every event by way of the general parser; offsets are the ends of reads."""
    answer, parser, end = Answer(), EventStreamParser(), 0
    for piece in pieces:
        end += len(piece)
        for event in parser.feed(end, piece):
            answer.take(read_chunk(event), event.at, event.data)
    answer.surprise(parser.ignored, parser.ignored_sample or "")
    answer.surprise(bool(parser.unfinished), parser.unfinished)
    return answer


def same(pieces: list[bytes]) -> None:
    body = Body.of(range(len(pieces)), pieces)
    short, full = read_answer(body), in_full(pieces)
    assert body.reads_at(short.ends).tolist() == body.reads_at(full.ends).tolist()
    assert (short.done_at is None) == (full.done_at is None)
    if short.done_at is not None and full.done_at is not None:
        assert body.reads_at([short.done_at]) == body.reads_at([full.done_at])
    for name in (
        "texts",
        "ids",
        "stated",
        "error",
        "finish_reason",
        "usage",
        "unexpected",
        "unexpected_sample",
    ):
        assert getattr(short, name) == getattr(full, name), name


def choice(**fields: Any) -> dict[str, Any]:
    return {"id": "x:1", "model": " word", "choices": [{"index": 0, "finish_reason": None, **fields}]}


CALL = {"index": 0, "function": {"arguments": "@"}}
# "@" is where a text is put.
ONE_TEXT = [
    choice(text="@", logprobs=None),
    choice(delta={"content": "@"}),
    choice(delta={"reasoning": "@", "content": ""}),
    choice(delta={"tool_calls": [CALL]}),
]
MORE = [
    choice(delta={"tool_calls": [{"function": {"arguments": {"a": "@"}}}]}),
    choice(delta={"reasoning": "a", "content": "@"}),
    choice(delta={"thoughts": "@"}),
    choice(text="@", token_ids=[5, 6]),
    {**choice(text="@"), "usage": {"completion_tokens": 3}},
    {**choice(text="a"), "error": "@"},
    {"choices": [{"index": 0, "text": "a"}, {"index": 1, "text": "@"}]},
    choice(text="@", finish_reason="abort"),
    choice(text="a", finish_reason="@"),
    {"ping": "@"},
]
SHAPES = [
    *ONE_TEXT,
    *MORE,
    choice(delta={"reasoning_content": "@", "reasoning": "@"}),
    {"object": "@", **choice(text="a")},
]
TEXTS = st.one_of(
    st.sampled_from(
        [" word", "", "a", "ü", "日🙂", '"', '\\"', "\\", "\n\n", "\r\n", "[DONE]", "data: x", "@", "error"]
    ),
    st.text(max_size=4),
)
OTHERS = [
    ": ping",
    "event: error",
    "id: 7",
    "data: [DONE]",
    "",
    "",
    "data: ",
    "foo: bar",
    "data: {",
    'data: "a"',
]


@st.composite
def lines(draw: st.DrawFn) -> list[str]:
    """Lines of a stream in which the same shapes come again and again."""
    shapes = draw(st.lists(st.sampled_from(SHAPES), min_size=1, max_size=2))
    compact, plain, space = draw(st.booleans()), draw(st.booleans()), draw(st.sampled_from(["", " ", "  "]))
    made: list[str] = []
    for text in draw(st.lists(TEXTS, min_size=1, max_size=8)):
        shape = json.dumps(
            draw(st.sampled_from(shapes)), ensure_ascii=plain, separators=(",", ":") if compact else None
        )
        made += ["data:" + space + shape.replace('"@"', json.dumps(text, ensure_ascii=plain)), ""]
        made += draw(st.lists(st.sampled_from(OTHERS), max_size=1))
    return made


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    """Such streams, whole or with a few bytes put in, taken out or cut off anywhere."""
    eol = draw(st.sampled_from(["\n", "\n", "\r\n", "\r"]))
    data = b"\xef\xbb\xbf" if draw(st.booleans()) else b""
    data += "".join(line + eol for line in draw(lines())).encode()
    odd = st.sampled_from(
        [b"\n", b"\r", b" ", b'"', b"\\", b"\n\n", b"\xff", b"\xef\xbb\xbf", b",", b"\\ud83d"]
    )
    for place, put, gone in draw(st.lists(st.tuples(st.floats(0, 1), odd, st.integers(0, 2)), max_size=3)):
        at = int(place * len(data))
        data = data[:at] + put + data[at + gone :]
    return data[: int(draw(st.sampled_from([1.0, 1.0, 0.9, 0.5])) * len(data))]


@given(data=streams(), cuts=st.lists(st.integers(1, 2000), max_size=6))
def test_the_short_ways_say_what_the_long_one_says(data: bytes, cuts: list[int]) -> None:
    same(split(data, cuts) if data else [])


@given(data=streams())
def test_the_same_with_each_byte_read_alone(data: bytes) -> None:
    same([data[at : at + 1] for at in range(len(data))])


@given(data=st.lists(st.sampled_from([b"data: ", b"data:{}", b"\n", b"\r", b"\r\n", b"\xef\xbb\xbf", b"a:"])))
def test_the_same_with_nothing_but_line_ends(data: list[bytes]) -> None:
    same([piece for piece in data if piece])


@pytest.mark.parametrize("shape", ONE_TEXT)
def test_a_template_takes_its_own_lines_only(shape: dict[str, Any]) -> None:
    line = b"data: " + json.dumps(shape).encode()
    template = learn_template(line, read_json(line[6:]) or Chunk())
    assert template is not None
    for text in ("a", "ü\n", '"', "\\"):
        assert template.texts_of([line.replace(b'"@"', json.dumps(text).encode())], 0) == [text]
    for other in (b'""', b"null", b'"a","b"', b'"', b' "a"', b'"a"\n', b'"\n"'):
        assert template.texts_of([line.replace(b'"@"', other)], 0) == []
    for other in (line[:-1], line[1:], b""):
        assert template.texts_of([other], 0) == []
    like, odd = line.replace(b'"@"', b'"x"'), line.replace(b'"@"', b'""')
    assert template.texts_of([odd, like, like, odd, like], 1) == ["x", "x"]  # up to the first that is not


@pytest.mark.parametrize("shape", MORE)
def test_what_says_more_than_a_text_is_no_template(shape: dict[str, Any]) -> None:
    line = b"data: " + json.dumps(shape).encode()
    chunk = read_json(line[6:])
    assert chunk is not None and learn_template(line, chunk) is None


def test_no_text_is_mistaken_for_one_put_in_its_place() -> None:
    """Whatever is put in the place of a text to see whether it is one, the text itself may be the same."""
    for text in ("another text", "word", "x", "xx"):
        same(
            [
                b"data: " + json.dumps({"id": f"id{number}", **choice(text=text)}).encode() + b"\n\n"
                for number in range(4)
            ]
        )
