"""What one event says, as a table."""

import json
from typing import Any

import pytest

from harness.client.chunks import Chunk, read_chunk, read_stream
from harness.client.sse import ServerEvent


def chunk(data: Any, kind: str = "message") -> Chunk:
    return read_chunk(ServerEvent(0, kind, data if isinstance(data, str) else json.dumps(data), ""))


def choice(**fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "finish_reason": None, **fields}]}


@pytest.mark.parametrize(
    ("record", "text"),
    [
        (choice(text=" word"), " word"),
        (choice(text=""), ""),
        (choice(delta={"role": "assistant", "content": ""}), ""),
        (choice(delta={"role": "assistant"}), ""),
        (choice(delta={"content": None}), ""),
        (choice(delta={}), ""),
        (choice(delta={"content": "a"}), "a"),
        (choice(delta={"reasoning": "r"}), "r"),
        (choice(delta={"reasoning_content": "r"}), "r"),
        (choice(delta={"reasoning_content": "r", "reasoning": "r"}), "r"),  # two names of one thing
        (choice(delta={"reasoning_content": None, "content": "c"}), "c"),
        (choice(delta={"refusal": "no"}), "no"),
        (choice(delta={"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": ""}}]}), ""),
        (
            choice(
                delta={
                    "tool_calls": [{"function": {"arguments": '{"a"'}}, {"function": {"arguments": ":1}"}}]
                }
            ),
            '{"a":1}',
        ),
        (choice(delta={"tool_calls": None}), ""),
        (choice(message={"role": "assistant", "content": "whole"}), "whole"),
        ({"choices": []}, ""),
    ],
)
def test_generated_text(record: dict[str, Any], text: str) -> None:
    found = chunk(record)
    assert found.text == text and found.carries_tokens == bool(text)
    assert not found.unexpected and found.error is None and not found.done


def test_ids_without_text_are_tokens() -> None:
    found = chunk(choice(text="", token_ids=[5, 6]))
    assert found.carries_tokens and found.ids == (5, 6)
    assert not chunk(choice(text="", token_ids=[])).carries_tokens
    assert not chunk(choice(text="", token_ids=None)).carries_tokens


def test_usage_and_finish_reason() -> None:
    found = chunk({**choice(text="a", finish_reason="stop"), "usage": {"completion_tokens": 3}})
    assert (found.text, found.finish_reason, found.usage) == ("a", "stop", {"completion_tokens": 3})
    assert chunk({**choice(text="a"), "usage": None}).usage is None
    assert chunk({"usage": {"completion_tokens": 3}}).unexpected is False


@pytest.mark.parametrize(
    ("data", "kind", "error"),
    [
        ({"error": {"message": "out of memory", "code": 500}}, "message", "out of memory"),
        ({"error": {"code": 7}}, "message", '{"code":7}'),
        ({"error": "no"}, "message", "no"),
        ({"object": "error", "message": "old style"}, "message", "old style"),
        ({**choice(text="a"), "error": {"message": "both"}}, "message", "both"),
        ("boom", "error", "boom"),
        ({"message": "x"}, "error", '{"message": "x"}'),
        (choice(text="", finish_reason="abort"), "message", "The server gave up with finish_reason=abort."),
    ],
)
def test_errors_in_the_stream(data: Any, kind: str, error: str) -> None:
    assert chunk(data, kind).error == error


@pytest.mark.parametrize(
    "data",
    [
        "hello",
        "[1, 2]",
        "3",
        {"x": 1},
        {"choices": "a"},
        {"choices": [1]},
        {"choices": [{"index": 1, "text": "b"}]},
    ],
)
def test_what_nobody_expects(data: Any) -> None:
    found = chunk(data)
    assert found.unexpected and not found.carries_tokens and found.error is None


def test_no_error_is_no_error() -> None:
    assert chunk({**choice(text="a"), "error": None}).error is None


@pytest.mark.parametrize("data", ["[DONE]", " [DONE] "])
def test_done(data: str) -> None:
    assert chunk(data).done


def test_a_whole_stream() -> None:
    body = b"".join(
        b"data: %b\n\n" % json.dumps(choice(text=t, token_ids=[i])).encode() for i, t in enumerate("abc")
    )
    content = read_stream(body + b"data: [DONE]\n\n")
    assert (content.text, content.ids, content.error) == ("abc", [0, 1, 2], None)


@pytest.mark.parametrize(
    ("record", "text"),
    [
        (choice(delta={"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}), "ab"),
        (choice(delta={"content": [{"type": "thinking", "thinking": [{"text": "t"}]}]}), "t"),
        (choice(delta={"tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}]}), '{"a": 1}'),
        (choice(delta={"tool_calls": [{"function": {"name": "f", "arguments": {}}}]}), ""),
        (choice(delta={"function_call": {"name": "f", "arguments": "{"}}), "{"),
        ({"choices": [{"index": None, "text": "a"}]}, "a"),
        ({"choices": [{"text": "a"}]}, "a"),
    ],
)
def test_other_shapes_of_generated_text(record: dict[str, Any], text: str) -> None:
    found = chunk(record)
    assert found.text == text and not found.unexpected


def test_several_choices_in_one_event() -> None:
    """One was asked for: number 0 counts, the others are counted as unexpected."""
    found = chunk(
        {"choices": [{"index": 1, "text": "b", "finish_reason": "stop"}, {"index": 0, "text": "a"}]}
    )
    assert (found.text, found.finish_reason, found.unexpected) == ("a", None, True)


def test_text_under_an_unknown_name_is_not_dropped_in_silence() -> None:
    assert chunk(choice(delta={"thoughts": "hm"})).unexpected
    assert not chunk(choice(delta={"role": "assistant", "name": "x", "content": ""})).unexpected
    assert not chunk(choice(delta={"content": "a", "thoughts": "hm"})).unexpected


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ('{"choices": [{"text": "a", "logprobs": {"token_logprobs": [-Infinity, NaN]}}]}', "a"),
        ('{"choices": [{"text": "\\ud83d"}]}', "\ufffd"),
        ('{"choices": [{"text": "\\ud83d\\ude00"}]}', "\U0001f600"),
    ],
)
def test_json_as_other_encoders_write_it(data: str, text: str) -> None:
    found = chunk(data)
    assert found.text == text and not found.unexpected


def test_json_too_deep_for_anyone_is_unexpected() -> None:
    assert chunk("[" * 100_000).unexpected
