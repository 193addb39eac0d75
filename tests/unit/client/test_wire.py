"""Every unusual answer at every split of its bytes: tokens, their instants and the outcome are those put in."""

from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.client.outcome import Outcome, outcome_of
from tests.support.wire import Part, Received, Wire, event, json_event, put_on_wire, receive, split

USAGE = {"prompt_tokens": 4, "completion_tokens": 3}
TEXTS = st.sampled_from([" word", "a", "ü", "日本", "🙂", '"', "\\", "\n", " [DONE]", "data: x", "\u2028"])


def choice(**fields: Any) -> dict[str, Any]:
    return {"id": "x", "choices": [{"index": 0, "finish_reason": None, **fields}]}


@st.composite
def parts(draw: st.DrawFn, endings: bool = True) -> list[Part]:
    """A stream that a server may send, its closing included."""
    eol = draw(st.sampled_from(["\n", "\r\n", "\r"]))
    style = {"eol": eol, "space": draw(st.sampled_from(["", " "])), "broken": draw(st.booleans())}

    def token(make: Any) -> Any:
        return TEXTS.map(lambda text: json_event(make(text), text=text, **style))

    kinds = st.one_of(
        token(lambda text: choice(text=text)),
        token(lambda text: choice(delta={"content": text})),
        token(lambda text: choice(delta={"role": "assistant", "content": None, "reasoning_content": text})),
        token(lambda text: choice(delta={"reasoning": text})),
        token(lambda text: choice(delta={"tool_calls": [{"index": 0, "function": {"arguments": text}}]})),
        token(lambda text: choice(delta={"function_call": {"arguments": text}})),
        token(lambda text: {**choice(text=text), "usage": USAGE}),
        token(lambda text: {**choice(text=text, logprobs={"token_logprobs": [float("-inf")]})}),
        st.just(json_event(choice(delta={"role": "assistant", "content": ""}), **style)),
        st.just(
            json_event(choice(delta={"tool_calls": [{"function": {"name": "f", "arguments": ""}}]}), **style)
        ),
        st.just(json_event({"choices": [], "usage": USAGE}, **style)),
        st.just(json_event({"choices": [{"index": 1, "text": "other"}]}, surprises=1, **style)),
        st.just(json_event({"ping": 1}, surprises=1, **style)),
        st.just(event(["data: plain words"], eol, surprises=1)),
        st.just(event([": keep-alive"], eol)),
        st.just(event(["event: ping", "id: 7", "retry: 5"], eol)),
        st.just(event(['{"error": "no data field"}'], eol, surprises=1)),
        st.just(event(["", ""], eol)),
    )
    stream = draw(st.lists(kinds, max_size=8))
    if draw(st.booleans()):
        stream.append(json_event(choice(text="", finish_reason="stop"), finish="stop", **style))
    if draw(st.booleans()):
        stream.append(json_event({"choices": [], "usage": USAGE}, **style))
    if draw(st.booleans()):
        stream.append(event(["data: [DONE]"], eol, done=True))
    return stream


@st.composite
def wires(draw: st.DrawFn) -> tuple[list[Part], Wire]:
    stream = draw(parts())
    wire = put_on_wire(
        stream,
        draw(st.sampled_from(["chunked", "length", "close"])),
        draw(st.lists(st.integers(1, 60), max_size=4)),
        draw(
            st.sampled_from([b"", b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Hints\r\nLink: a\r\n\r\n"])
        ),
        draw(st.sampled_from(["", ";x=y", ';a="b c";d'])),
        draw(st.sampled_from([b"", b"X-Cost: 1\r\n", b"A: 1\r\nContent-Type: text/html\r\n"])),
    )
    return stream, wire


CUTS = st.lists(st.integers(1, 3000), max_size=12)


def check_events(stream: list[Part], wire: Wire, got: Received, pieces: list[bytes]) -> Outcome:
    """The tokens of the parts that came whole, each stamped in the call that brought its last byte."""
    outcome = outcome_of(got.raw)
    came = sum(map(len, pieces))
    ends = list(accumulate(len(piece) for piece in pieces))
    told = [(part, end) for part, end in zip(stream, wire.ends, strict=True) if part.text and end < came]
    assert outcome.answer.texts == [part.text for part, _ in told]
    for ns, (_, at) in zip(outcome.ns.tolist(), told, strict=True):
        before, after = got.calls[next(number for number, end in enumerate(ends) if at < end)]
        assert before <= ns <= after
    return outcome


@given(made=wires(), cuts=CUTS)
def test_a_whole_answer(made: tuple[list[Part], Wire], cuts: list[int]) -> None:
    stream, wire = made
    pieces = split(wire.data, cuts)
    got = receive(pieces, eof=not wire.framed)
    outcome = check_events(stream, wire, got, pieces)
    finish = next((part.finish for part in stream if part.finish), None)
    done = any(part.done for part in stream)
    assert outcome.answer.unexpected == sum(part.surprises for part in stream)
    assert (outcome.answer.unexpected_sample is None) == (outcome.answer.unexpected == 0)
    assert outcome.answer.finish_reason == finish
    expected = None if finish or (done and outcome.events) else "empty" if done else "truncated"
    assert outcome.error == expected
    assert got.notes == ["reusable" if wire.framed else "closed", "completed"]


@given(made=wires(), cuts=CUTS, share=st.floats(0, 1))
def test_an_answer_that_breaks_off_anywhere(
    made: tuple[list[Part], Wire], cuts: list[int], share: float
) -> None:
    stream, wire = made
    end = int(share * len(wire.data))
    pieces = split(wire.data[:end], cuts) if end else []
    got = receive(pieces, eof=True)
    if end < wire.head_ends:
        assert outcome_of(got.raw).error == "disconnected"
        return
    outcome = check_events(stream, wire, got, pieces)
    whole = [part for part, at in zip(stream, wire.ends, strict=True) if at < end]
    finish, done = any(part.finish for part in whole), any(part.done for part in whole)
    if not wire.framed or end == len(wire.data):  # no end of a body without framing is too early for HTTP
        expected = None if finish or (done and outcome.events) else "empty" if done else "truncated"
    else:
        expected = None if finish and done else "truncated"
    assert outcome.error == expected


@pytest.mark.parametrize("framing", ["chunked", "length", "close"])
@pytest.mark.parametrize("eol", ["\n", "\r\n", "\r"])
def test_each_single_split_of_one_answer(framing: str, eol: str) -> None:
    stream = [
        event([": hello"], eol),
        json_event(choice(delta={"role": "assistant"}), eol),
        json_event(choice(delta={"content": "日🙂"}), eol, text="日🙂"),
        json_event(choice(delta={"content": "x"}, finish_reason="stop"), eol, text="x", finish="stop"),
        event(["data: [DONE]"], eol, done=True),
    ]
    wire = put_on_wire(stream, framing, [7, 30], extension=";n", trailer=b"T: 1\r\n")
    for cut in range(1, len(wire.data)):
        pieces = [wire.data[:cut], wire.data[cut:]]
        got = receive(pieces, eof=not wire.framed)
        outcome = check_events(stream, wire, got, pieces)
        assert outcome.error is None and outcome.answer.unexpected == 0
    one_by_one = [wire.data[at : at + 1] for at in range(len(wire.data))]
    got = receive(one_by_one, eof=not wire.framed)
    assert check_events(stream, wire, got, one_by_one).error is None


@given(
    made=wires(),
    cuts=CUTS,
    error=st.sampled_from(
        [
            json_event({"error": {"message": "boom"}}),
            json_event({"object": "error", "message": "boom"}),
            json_event({"error": "boom"}),
            event(["event: error", "data: boom"], "\n"),
            json_event({"choices": [{"index": 0, "text": "", "finish_reason": "error"}]}),
        ]
    ),
    place=st.integers(0, 8),
)
def test_an_error_inside_a_stream_is_an_error_wherever_it_stands(
    made: tuple[list[Part], Wire], cuts: list[int], error: Part, place: int
) -> None:
    stream = [*made[0][:place], error, *made[0][place:]]
    wire = put_on_wire(stream, "chunked", [50])
    pieces = split(wire.data, cuts)
    outcome = check_events(stream, wire, receive(pieces), pieces)
    assert outcome.error == "stream_error"


@given(data=st.binary(max_size=300), cuts=CUTS)
def test_noise_is_never_a_success_and_never_a_crash(data: bytes, cuts: list[int]) -> None:
    outcome = outcome_of(receive(split(data, cuts) if data else [], eof=True).raw)
    assert outcome.error in ("bad_response", "disconnected", "truncated") or str(outcome.error).startswith(
        "http_"
    )


@given(body=st.binary(max_size=200), cuts=CUTS)
def test_a_body_of_noise(body: bytes, cuts: list[int]) -> None:
    wire = put_on_wire([Part(body + b".", 0)], "length")
    outcome = outcome_of(receive(split(wire.data, cuts)).raw)
    assert outcome.error == "truncated" and outcome.answer.unexpected >= 0


LAST = json_event(choice(text="a", finish_reason="stop")).data
OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"


LENGTH = b"Content-Length: %d\r\n\r\n%b" % (len(LAST), LAST)
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
FAILED, CLOSED, REUSED = ["lost", "bad_response"], ["closed", "completed"], ["reusable", "completed"]


@pytest.mark.parametrize(
    ("reply", "notes"),
    [
        # what follows a whole answer spoils the connection, not the answer
        (OK + LENGTH + b"\r\ngarbage", CLOSED),
        (OK + LENGTH + OK, CLOSED),
        (OK + CHUNKED + b"%x\r\n%b\r\n0\r\n\r\nXX" % (len(LAST), LAST), CLOSED),
        # broken framing
        (OK + CHUNKED + b"zz\r\n" + LAST, FAILED),
        (OK + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n", FAILED),
        (OK + b"Content-Length: -5\r\n\r\n", FAILED),
        (b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", FAILED),
        (b"SSH-2.0-OpenSSH\r\n", FAILED),
        # what nobody asked for
        (OK + b"Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n\x1f\x8b", FAILED),
        (OK + b"Content-Encoding: identity\r\n" + LENGTH, REUSED),
    ],
)
def test_answers_at_the_edge_of_http(reply: bytes, notes: list[str]) -> None:
    for pieces in ([reply], split(reply, range(len(reply)))):
        got = receive(pieces)
        outcome = outcome_of(got.raw)
        if len(pieces) == 1:
            assert got.notes == notes
        bad = notes is FAILED
        assert (outcome.error, outcome.text) == (("bad_response", "") if bad else (None, "a"))


@pytest.mark.parametrize(
    "endless",
    [
        b"X-Header: " + b"x" * 4086,  # one header that never ends
        b"X-Header: y\r\n" * 300,  # headers that never end
        b"\r\nHTTP/1.1 102 Processing\r\n",  # interim answers without the true one
    ],
)
def test_a_header_that_never_ends(endless: bytes) -> None:
    first = b"HTTP/1.1 102 Processing\r\n" if endless.startswith(b"\r\n") else b"HTTP/1.1 200 OK\r\n"
    got = receive([first, *[endless] * 100_000])
    assert got.notes == ["lost", "bad_response"] and len(got.calls) * len(endless) < 1 << 19


def test_trailers_and_extensions_that_never_end() -> None:
    head = OK + b"Transfer-Encoding: chunked\r\n\r\n"
    for start, more in ((b"0\r\n", b"T: x\r\n" * 500), (b"5;", b"e" * 4000)):
        got = receive([head, start, *[more] * 10_000])
        assert got.notes == ["lost", "bad_response"] and len(got.calls) * len(more) < 1 << 19


def test_long_extensions_between_short_chunks_are_no_head_without_end() -> None:
    stream = [json_event(choice(text="a")).data] * 200 + [LAST]
    chunks = [piece for data in stream for piece in (b"%x;%b\r\n" % (len(data), b"e" * 4000), data + b"\r\n")]
    got = receive([OK + CHUNKED, *chunks, b"0\r\n\r\n"])
    assert got.notes == REUSED and outcome_of(got.raw).events == 201


def test_a_line_that_never_ends() -> None:
    got = receive([OK + b"\r\ndata: ", *[b"x" * 65536] * 2000])
    assert got.notes == ["lost", "oversized"] and len(got.calls) <= 34
    assert outcome_of(got.raw).error == "oversized"


def test_long_streams_of_short_lines_are_no_long_line() -> None:
    lines = json_event(choice(text="a")).data * 500
    got = receive([OK + b"\r\n", *[lines] * 100, LAST], eof=True)
    assert got.notes == ["closed", "completed"] and outcome_of(got.raw).events == 50_001


def test_a_long_line_in_small_pieces_is_read_in_one_pass() -> None:
    """900 kB a hundred bytes at a time: each byte is copied a few times, not nine thousand times."""
    body = json_event(choice(text="x" * 900_000, finish_reason="stop")).data
    wire = OK + b"Content-Length: %d\r\n\r\n" % len(body) + body
    got = receive(split(wire, range(100, len(wire), 100)))
    assert outcome_of(got.raw).text == "x" * 900_000
