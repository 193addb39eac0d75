"""What the real engine answers, against truths from elsewhere."""

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from harness.core.model_store import ModelFiles
from tests.support.completions import stream, whole

pytestmark = pytest.mark.engine
_COMPLETIONS, _CHAT = "/v1/completions", "/v1/chat/completions"
_FRANCE = [{"role": "user", "content": "What is the capital of France?"}]


async def test_the_capital_of_france(client: aiohttp.ClientSession) -> None:
    answer = await whole(client, _CHAT, messages=_FRANCE, temperature=0)
    assert "Paris" in answer["choices"][0]["message"]["content"]
    assert answer["choices"][0]["finish_reason"] == "stop"
    streamed = await stream(client, _CHAT, messages=_FRANCE, temperature=0)
    assert streamed.text == answer["choices"][0]["message"]["content"]
    assert streamed.events[0]["choices"][0]["delta"]["role"] == "assistant"
    assert streamed.usage == answer["usage"]


async def test_an_echoed_prompt_is_given_back_whole(client: aiohttp.ClientSession, model: ModelFiles) -> None:
    """Fed in several chunks of 64 tokens; what its log-probabilities are is the conformance suite's."""
    text = Path(asyncio.__file__).read_text()[:800]
    ids = model.tokenizer().encode(text)
    assert len(ids) > 3 * 64
    answer = await whole(client, _COMPLETIONS, prompt=ids, echo=True, logprobs=1, max_tokens=0)
    first, *others = answer["choices"][0]["logprobs"]["token_logprobs"]
    assert first is None
    assert len(others) == len(ids) - 1 and all(value <= 0 for value in others)
    assert answer["choices"][0]["text"] == text
    assert answer["usage"] == {
        "prompt_tokens": len(ids),
        "completion_tokens": 0,
        "total_tokens": len(ids),
    }


async def test_eight_staggered_requests_give_the_tokens_of_one_at_a_time(
    client: aiohttp.ClientSession, model: ModelFiles
) -> None:
    tokenizer = model.tokenizer()
    topics = ["rivers", "bread", "the moon", "chess", "a lighthouse", "copper", "bees", "winter"]
    prompts = [
        tokenizer.encode(f"Here is a short text about {topic}. " * (1 + 3 * n))
        for n, topic in enumerate(topics)
    ]

    async def ask(ids: list[int]) -> list[int]:
        return (
            await stream(client, _COMPLETIONS, prompt=ids, max_tokens=24, temperature=0, ignore_eos=True)
        ).ids

    async def later(number: int, ids: list[int]) -> list[int]:
        await asyncio.sleep(0.05 * number)
        return await ask(ids)

    alone = [await ask(ids) for ids in prompts]
    together = await asyncio.gather(*(later(number, ids) for number, ids in enumerate(prompts)))
    assert list(together) == alone
    assert all(len(ids) == 24 for ids in alone)


async def test_one_event_a_token_with_the_reason_on_the_last_and_usage_after_it(
    client: aiohttp.ClientSession, model: ModelFiles
) -> None:
    prompt = model.tokenizer().encode("Write three emojis and Japanese: 日本語 🎉")
    answer = await stream(client, _COMPLETIONS, prompt=prompt, max_tokens=40, temperature=0, ignore_eos=True)
    *tokens, last = answer.events
    assert [len(event["choices"][0]["token_ids"]) for event in tokens] == [1] * 40
    assert [event["choices"][0]["finish_reason"] for event in tokens] == [None] * 39 + ["length"]
    assert last["choices"] == []
    assert answer.usage == {
        "prompt_tokens": len(prompt),
        "completion_tokens": 40,
        "total_tokens": len(prompt) + 40,
    }
    assert answer.done
    assert answer.text == model.tokenizer().fast.decode(answer.ids, skip_special_tokens=True)


async def test_text_ids_and_a_list_of_one_are_the_same_prompt(
    client: aiohttp.ClientSession, model: ModelFiles
) -> None:
    text = "The sky is"
    ids = model.tokenizer().encode(text)
    answers = [
        await stream(client, _COMPLETIONS, prompt=prompt, max_tokens=6, temperature=0)
        for prompt in (text, ids, [ids])
    ]
    assert answers[0].ids == answers[1].ids == answers[2].ids


async def test_a_stop_string_ends_the_answer_before_it(client: aiohttp.ClientSession) -> None:
    free = await stream(
        client, _COMPLETIONS, prompt="Count: 1, 2, 3,", max_tokens=24, temperature=0, ignore_eos=True
    )
    stop = free.text[9:14]  # spans tokens
    answer = await stream(
        client,
        _COMPLETIONS,
        prompt="Count: 1, 2, 3,",
        max_tokens=24,
        temperature=0,
        ignore_eos=True,
        stop=[stop, "§"],
    )
    assert answer.text == free.text[: free.text.find(stop)]
    assert answer.choices[-1]["finish_reason"] == "stop"
    assert answer.usage["completion_tokens"] == len(answer.ids) < 24
    assert answer.ids == free.ids[: len(answer.ids)]


async def test_the_end_token_ends_an_answer_unless_told_otherwise(
    client: aiohttp.ClientSession, model: ModelFiles
) -> None:
    end = model.tokenizer().eos_ids[0]
    ask: dict[str, Any] = {"messages": _FRANCE, "temperature": 0, "max_tokens": 30}
    free = await stream(client, _CHAT, **ask)
    assert free.ids[-1] == end
    assert free.choices[-1]["finish_reason"] == "stop"
    assert free.usage["completion_tokens"] == len(free.ids) < 20
    longer = await stream(client, _CHAT, **ask, min_tokens=20)
    assert end not in longer.ids[:20]
    assert 20 <= len(longer.ids) <= 30
    ignored = await stream(client, _CHAT, **ask, ignore_eos=True)
    assert len(ignored.ids) == 30
    assert end in ignored.ids
    assert ignored.choices[-1]["finish_reason"] == "length"


async def test_seeds_make_sampling_repeatable(client: aiohttp.ClientSession) -> None:
    async def ask(seed: int) -> list[int]:
        return (
            await stream(
                client, _COMPLETIONS, prompt="Once upon a time", max_tokens=12, seed=seed, ignore_eos=True
            )
        ).ids

    assert await ask(1) == await ask(1)
    assert len({tuple(await ask(seed)) for seed in range(4)}) > 1


async def test_log_probabilities_of_prompt_and_answer(
    client: aiohttp.ClientSession, model: ModelFiles
) -> None:
    """What is generated gets the same log-probability when it is scored as a prompt."""
    ids = model.tokenizer().encode("The capital of France is")
    body = {"prompt": ids, "echo": True, "logprobs": 1, "temperature": 0, "max_tokens": 4, "ignore_eos": True}
    answer = await stream(client, _COMPLETIONS, **body)
    logprobs = [value for choice in answer.choices for value in choice["logprobs"]["token_logprobs"]]
    again = await whole(
        client, _COMPLETIONS, prompt=[*ids, *answer.ids], echo=True, logprobs=0, max_tokens=0, temperature=0
    )
    scored = again["choices"][0]["logprobs"]
    assert scored["token_logprobs"][1:] == pytest.approx(logprobs[1:], abs=1e-3)
    text = again["choices"][0]["text"]
    assert answer.text == text
    tokens = "".join(scored["tokens"])
    assert tokens == text
    assert [
        text[at:].startswith(token) for at, token in zip(scored["text_offset"], scored["tokens"], strict=True)
    ]


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        (_COMPLETIONS, {"prompt": "x", "best_of": 2}, 400, "best_of"),
        (_COMPLETIONS, {"prompt": "x", "kv": {"quant": "int4"}}, 400, "kv"),
        (_COMPLETIONS, {"prompt": [1] * 5120, "max_tokens": 1}, 400, "5120"),
        (_COMPLETIONS, {"prompt": [49152]}, 400, "49152"),
        (_COMPLETIONS, {"prompt": "x", "model": "gpt"}, 404, "gpt"),
        (_CHAT, {"messages": []}, 400, "messages"),
        ("/v1/embeddings", {}, 404, "embeddings"),
    ],
)
async def test_bad_requests_are_refused_in_openais_shape(
    client: aiohttp.ClientSession, path: str, body: dict[str, Any], status: int, words: str
) -> None:
    async with client.post(path, json=body) as response:
        assert response.status == status
        assert words in (await response.json())["error"]["message"]


async def test_wrong_json_is_refused(client: aiohttp.ClientSession) -> None:
    async with client.post(_COMPLETIONS, data=b'{"prompt": ') as response:
        assert response.status == 400
        assert "JSON" in (await response.json())["error"]["message"]


async def test_the_model_is_listed(client: aiohttp.ClientSession) -> None:
    async with client.get("/v1/models") as response:
        assert [model["id"] for model in (await response.json())["data"]] == ["smollm2-135m"]
