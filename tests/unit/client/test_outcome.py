"""From raw exchanges to outcomes: which are successes, and of what kind the others are."""

import json
from typing import Any

import pytest

from harness.client.exchanges import Body, RawExchange, collect
from harness.client.journal import Kind
from harness.client.outcome import outcome_of

SSE = "text/event-stream; charset=utf-8"


def event(text: str = "a", finish: str | None = None, **more: Any) -> bytes:
    return (
        b"data: "
        + json.dumps({"choices": [{"index": 0, "text": text, "finish_reason": finish}], **more}).encode()
        + b"\n\n"
    )


DONE = b"data: [DONE]\n\n"


def raw(*reads: bytes, **fields: Any) -> RawExchange:
    values: dict[str, Any] = {
        "request": 0,
        "scheduled_ns": 1,
        "sent_ns": 2,
        "headers_ns": 3,
        "end_ns": 1000,
        "status": 200,
        "content_type": SSE,
        "body": Body.of(range(10, 10 * len(reads) + 1, 10), list(reads)),
    }
    return RawExchange(**{**values, **fields})


@pytest.mark.parametrize(
    ("exchange", "error"),
    [
        (raw(event(), event(finish="stop"), DONE), None),
        (raw(event(), event(finish="stop")), None),
        (raw(event(), DONE), None),
        (raw(event(text="", finish="stop"), DONE), None),  # nothing to say, and said so
        (raw(event()), "truncated"),
        (raw(), "truncated"),
        (raw(DONE), "empty"),
        (raw(event(), b'data: {"error": {"message": "x"}}\n\n', DONE), "stream_error"),
        (raw(event(finish="stop"), b'data: {"error": {"message": "x"}}\n\n', DONE), "stream_error"),
        (raw(event(finish="stop"), content_type="TEXT/EVENT-STREAM"), None),
        (raw(event(finish="stop"), content_type="text/event-streams"), "bad_content_type"),
        (raw(b'{"choices": []}', content_type="application/json"), "bad_content_type"),
        (raw(b'{"error": {"message": "x"}}', content_type="application/json"), "stream_error"),
        (raw(b"no", status=503, content_type="text/plain"), "http_503"),
        (
            raw(status=429, failure=("truncated", "x")),
            "http_429",
        ),  # the status says more than the broken body
        (raw(event(), failure=("truncated", "x")), "truncated"),
        (raw(event(), failure=("timeout_token", "x")), "timeout_between_tokens"),
        (raw(failure=("timeout_token", "x")), "timeout_first_token"),
        (raw(b": ping\n\n", event(text=""), failure=("timeout_token", "x")), "timeout_first_token"),
        (raw(failure=("connect", "refused"), status=None, content_type=""), "connect"),
        (raw(event(), failure=("aborted", "x")), "aborted"),
        (raw(event(finish="stop"), failure=("aborted", "x")), "aborted"),
        (raw(event(finish="stop"), DONE, failure=("aborted", "x")), None),  # all was said
    ],
)
def test_success_and_kinds_of_error(exchange: RawExchange, error: str | None) -> None:
    assert outcome_of(exchange).error == error


def test_instants_and_reads() -> None:
    first = event("")[:20]
    outcome = outcome_of(
        raw(first, event("")[20:] + event("a")[:9], event("a")[9:] + event("b"), event("c", "stop"))
    )
    assert outcome.answer.texts == ["a", "b", "c"] and outcome.text == "abc"
    assert outcome.ns.tolist() == [30, 30, 40] and outcome.reads.tolist() == [2, 2, 3]
    assert outcome.end_ns == 1000


def test_a_stream_whose_connection_ended_badly_ends_with_done() -> None:
    assert outcome_of(raw(event(finish="stop"), DONE, failure=("timeout_request", "x"))).end_ns == 20


def test_the_last_usage_counts() -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}}
    outcome = outcome_of(raw(event(usage={"completion_tokens": 1}), event(finish="stop", usage=usage), DONE))
    assert outcome.usage_count("completion_tokens") == 2 and outcome.cached_tokens == 4
    assert outcome.answer.stated == {0: 1, 1: 2}
    for odd in (
        {"completion_tokens": 2**70},
        {"completion_tokens": "2"},
        {"completion_tokens": -1},
        {"completion_tokens": True},
        {},
    ):
        assert outcome_of(raw(event(usage=odd), DONE)).usage_count("completion_tokens") is None


def test_samples_are_bounded() -> None:
    outcome = outcome_of(raw(b"data: " + b"x" * 5000 + b"\n\n", event(finish="stop")))
    assert outcome.answer.unexpected == 1 and outcome.answer.unexpected_sample == "x" * 500
    assert len(outcome_of(raw(b"y" * 5000, status=500)).detail or "") == 500


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        (b'{"error": {"message": "bad key"}}', "bad key"),
        (b'{"detail": "not found"}', "not found"),
        (b'{"detail": [{"msg": "x"}]}', "[{'msg': 'x'}]"),
        (b"plain words", "plain words"),
        (b"[1]", "[1]"),
        (b"\xff", "\ufffd"),
    ],
)
def test_the_servers_own_words(body: bytes, detail: str) -> None:
    outcome = outcome_of(raw(body, status=400, content_type="application/json"))
    assert (outcome.error, outcome.detail) == ("http_400", detail)


def test_a_journal_becomes_exchanges() -> None:
    entries = [
        (int(Kind.PROMPT), 2, 1, b"7"),  # prepared, never due
        (int(Kind.PROMPT), 1, 1, b"9"),
        (int(Kind.SCHEDULED), 1, 5, b""),
        (int(Kind.SCHEDULED), 0, 6, b""),
        (int(Kind.SENT), 0, 7, b""),
        (int(Kind.SENT), 0, 8, b""),  # sent again after a reconnect
        (int(Kind.HEADERS), 0, 9, b"200\ntext/event-stream\n"),
        (int(Kind.BODY), 0, 10, b"a"),
        (int(Kind.BODY), 0, 11, b"b"),
        (int(Kind.END), 0, 12, b""),
        (int(Kind.ERROR), 1, 13, b"connect\nno\nway"),
        (int(Kind.SCHEDULED), 3, 14, b""),
    ]
    done, refused, cut = collect(entries)
    assert (done.sent_ns, done.headers_ns, done.end_ns, done.status) == (8, 9, 12, 200)
    assert (done.body.data, done.body.ns.tolist(), done.body.ends.tolist()) == (b"ab", [10, 11], [1, 2])
    assert done.failure is None
    assert (
        refused.failure == ("connect", "no\nway") and refused.prompt_tokens == 9 and refused.sent_ns is None
    )
    assert cut.request == 3 and cut.failure is not None and cut.failure[0] == "aborted"


def test_nothing_is_dropped_in_silence() -> None:
    outcome = outcome_of(raw(b"oops\n" + event(finish="stop"), b"data: [DONE]"))
    assert outcome.error is None and (outcome.answer.unexpected, outcome.answer.unexpected_sample) == (
        2,
        "oops",
    )
