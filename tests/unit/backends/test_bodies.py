"""What the server takes, and how it says no."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.serving.bodies import Refusal, parse_chat, parse_completion

_HELLO = [{"role": "user", "content": "Hello"}]
_json = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
_names = st.sampled_from(
    [
        "model",
        "prompt",
        "messages",
        "stream",
        "stream_options",
        "max_tokens",
        "max_completion_tokens",
        "min_tokens",
        "ignore_eos",
        "stop",
        "seed",
        "temperature",
        "top_p",
        "return_token_ids",
        "n",
        "user",
        "echo",
        "logprobs",
        "kv",
        "something_else",
    ]
)


def completion(**fields: Any) -> Any:
    return parse_completion(orjson.dumps({"prompt": "x", **fields}))


def test_defaults_are_those_of_the_api() -> None:
    call = completion()
    assert (call.max_tokens, call.temperature, call.top_p, call.stream) == (16, 1.0, 1.0, False)
    assert parse_chat(orjson.dumps({"messages": _HELLO})).max_tokens is None


@pytest.mark.parametrize("prompt", ["x", ["x"], [5, 6], [[5, 6]]])
def test_prompts_are_text_or_ids_or_a_list_of_one(prompt: Any) -> None:
    assert completion(prompt=prompt).prompt in ("x", [5, 6])


def test_null_is_the_same_as_absent() -> None:
    assert completion(stop=None, seed=None, max_tokens=None) == completion()


@pytest.mark.parametrize(
    ("asked", "own", "others"), [(None, False, 0), (0, True, 0), (1, True, 0), (20, True, 20)]
)
def test_alternatives_are_told_from_two_on(asked: int | None, own: bool, others: int) -> None:
    sampling = completion(logprobs=asked).sampling([1], context=99, vocabulary=10, default_seed=0)
    assert (sampling.logprobs, sampling.alternatives, sampling.prompt_logprobs) == (own, others, False)


def test_every_field_arrives() -> None:
    call = completion(
        model="m", stream=True, stream_options={"include_usage": True}, max_tokens=9, min_tokens=2, ignore_eos=True,
        stop=["a", "b"], seed=3, temperature=0, top_p=0.5, return_token_ids=True, echo=True, logprobs=1,
        kv={"quant": "int4"},
    )  # fmt: skip
    sampling = call.sampling([1, 2], context=11, vocabulary=10, default_seed=0)
    assert (sampling.max_tokens, sampling.min_tokens, sampling.ignore_eos, sampling.seed) == (9, 2, True, 3)
    assert (sampling.temperature, sampling.top_p, sampling.logprobs, sampling.prompt_logprobs) == (
        0,
        0.5,
        True,
        True,
    )
    assert call.stops == ("a", "b")
    assert sampling.kv == {"quant": "int4"}
    assert (call.model, call.stream, call.include_usage, call.return_token_ids) == ("m", True, True, True)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"foo": 1}, "foo"),
        ({"prompt": 3}, "prompt"),
        ({"prompt": ["a", "b"]}, "prompt"),
        ({"prompt": [1, True]}, "prompt"),
        ({"prompt": None}, "prompt"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": -1}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"logprobs": 21}, "logprobs"),
        ({"return_tokens_as_token_ids": 1}, "return_tokens_as_token_ids"),
        ({"stop": [""]}, "stop"),
        ({"stop": 3}, "stop"),
        ({"n": 2}, "n"),
        ({"stream": 1}, "stream"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"stream": True, "stream_options": {"x": True}}, "stream_options"),
        ({"messages": _HELLO}, "messages"),
        ({"kv": "int4"}, "kv"),
    ],
)
def test_a_wrong_field_is_named(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(Refusal, match=param) as refused:
        completion(**fields)
    assert refused.value.status == 400
    assert refused.value.body()["error"]["param"] == param


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"3", b"\xff"])
def test_what_is_no_json_object_is_refused(raw: bytes) -> None:
    with pytest.raises(Refusal, match="JSON"):
        parse_completion(raw)


@pytest.mark.parametrize(
    "messages", [None, [], "hi", [{"role": "user"}], [{"role": 1, "content": "x"}], ["x"]]
)
def test_wrong_messages_are_refused(messages: Any) -> None:
    with pytest.raises(Refusal, match="messages"):
        parse_chat(orjson.dumps({"messages": messages}))


@given(st.dictionaries(_names, _json))
def test_any_body_is_taken_or_refused_but_never_breaks(fields: dict[str, Any]) -> None:
    for parse in (parse_completion, parse_chat):
        try:
            call = parse(orjson.dumps(fields))
        except Refusal as refusal:
            assert refusal.status == 400
        else:
            assert "something_else" not in fields
            assert (call.prompt is None) != (call.messages is None)


@pytest.mark.parametrize(
    ("prompt_tokens", "max_tokens", "fits"), [(6, 4, True), (6, 5, False), (10, 1, False)]
)
def test_prompt_and_answer_must_fit_the_context(prompt_tokens: int, max_tokens: int, fits: bool) -> None:
    call = completion(max_tokens=max_tokens)
    if fits:
        assert call.sampling([1] * prompt_tokens, 10, 5, 0).max_tokens == max_tokens
        return
    with pytest.raises(Refusal, match="holds 10 tokens") as refused:
        call.sampling([1] * prompt_tokens, 10, 5, 0)
    assert refused.value.code == "context_length_exceeded"


def test_a_chat_without_a_length_may_fill_the_context() -> None:
    call = parse_chat(orjson.dumps({"messages": _HELLO}))
    assert call.sampling([1] * 3, 10, 5, 0).max_tokens == 7
    with pytest.raises(Refusal, match="holds 10 tokens"):
        call.sampling([1] * 10, 10, 5, 0)


@pytest.mark.parametrize("ids", [[], [5], [-1]])
def test_ids_must_exist(ids: list[int]) -> None:
    with pytest.raises(Refusal, match=r"empty|vocabulary"):
        completion().sampling(ids, 10, 5, 0)


def test_min_tokens_must_not_exceed_max_tokens() -> None:
    with pytest.raises(Refusal, match="min_tokens"):
        completion(min_tokens=5, max_tokens=4).sampling([1], 10, 5, 0)
