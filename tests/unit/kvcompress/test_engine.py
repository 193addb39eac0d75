"""Continuous batching over a tiny model with random weights, against transformers."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from backends.kvcompress.model.decoder import Decoder
from harness.core.metric_names import KV_RESERVED_BYTES, KV_USED_BYTES, PREEMPTIONS, REQUESTS_RUNNING
from tests.support.kv_engine import VOCABULARY, driven, load_tiny, sampling, tiny_llama

LENGTHS = (1, 40, 17, 16, 100, 2, 33, 64)


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    """Products this small are done before a second thread has woken up."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    folder = tmp_path_factory.mktemp("tiny")
    return tiny_llama(folder), folder


@pytest.fixture(scope="module")
def model(reference: tuple[Any, Path]) -> Decoder:
    return load_tiny(reference[1])


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    random = np.random.default_rng(3)
    return [random.integers(VOCABULARY - 1, size=size).tolist() for size in LENGTHS]


@pytest.fixture(scope="module")
def expected(reference: tuple[Any, Path], prompts: list[list[int]]) -> list[list[int]]:
    """Greedy tokens of transformers, each prompt alone."""
    llama, _ = reference
    answers = []
    for ids in prompts:
        asked = torch.tensor([ids])
        answer = llama.generate(
            asked, attention_mask=torch.ones_like(asked), max_new_tokens=128, min_new_tokens=128, do_sample=False,
            eos_token_id=None, pad_token_id=0,
        )  # fmt: skip
        answers.append(answer[0, len(ids) :].tolist())
    return answers


def test_greedy_tokens_are_those_of_transformers_alone_and_in_a_ragged_batch(
    model: Decoder, prompts: list[list[int]], expected: list[list[int]]
) -> None:
    alone, together = driven(model), driven(model)
    for number, ids in enumerate(prompts):
        alone.engine.add(number, ids, sampling(128))
        alone.drain()
    assert [alone.tokens(number) for number in range(8)] == expected
    for number, ids in enumerate(prompts):  # each arrives some steps after the one before
        together.engine.add(number, ids, sampling(128))
        for _ in range(number + 1):
            together.step()
    assert together.engine.gauges()[REQUESTS_RUNNING] == 8
    together.drain()
    assert [together.tokens(number) for number in range(8)] == expected


def test_batching_changes_teacher_forced_log_probabilities_by_less_than_a_thousandth(
    model: Decoder, reference: tuple[Any, Path], prompts: list[list[int]]
) -> None:
    llama, _ = reference
    alone, together = driven(model, chunk=256), driven(model, chunk=7)
    for one in (alone, together):
        for number, ids in enumerate(prompts):
            one.engine.add(number, ids, sampling(0, prompt_logprobs=True))
            if one is alone:
                one.drain()
        one.engine.add(99, prompts[1], sampling(60))
        one.drain()
    for number, ids in enumerate(prompts):
        first, *values = together.prompt_logprobs(number)
        assert first is None
        assert alone.prompt_logprobs(number)[1:] == pytest.approx(values, abs=1e-3)
        with torch.inference_mode():
            logits = llama(torch.tensor([ids])).logits[0].log_softmax(-1)
        truth = logits[range(len(ids) - 1), ids[1:]].tolist()
        assert values == pytest.approx(truth, abs=1e-3)


def test_a_small_pool_preempts_the_youngest_and_its_stream_goes_on_without_a_repeated_token(
    model: Decoder, prompts: list[list[int]], expected: list[list[int]]
) -> None:
    few = driven(model, pages=6 * 15)  # a request of 240 tokens at most, alone
    free = few.store.free_pages()
    optimistic = {"ignore_eos": False, "min_tokens": 0}  # so that only the prompt is certain
    # The last token of the vocabulary ends an answer; transformers' stop there, too.
    ends = [answer.index(96) + 1 if 96 in answer else 128 for answer in expected]
    for number, ids in enumerate(prompts):
        few.engine.add(number, ids, sampling(128, prompt_logprobs=True, **optimistic))
    most = 0
    while few.engine.has_work():
        few.step()
        most = max(most, few.store.pages - few.store.free_pages())
    assert few.engine.gauges()[PREEMPTIONS] > 0
    assert most <= few.store.pages
    assert few.store.free_pages() == free
    for number in range(8):
        assert few.tokens(number) == expected[number][: ends[number]]
        assert len(few.logprobs(number)) == ends[number]
        assert len(few.prompt_logprobs(number)) == LENGTHS[number]


def test_answers_of_a_certain_length_are_never_pushed_out(model: Decoder, prompts: list[list[int]]) -> None:
    few = driven(model, pages=6 * 15)
    for number, ids in enumerate(prompts):
        few.engine.add(number, ids, sampling(100))
    few.drain()
    assert few.engine.gauges()[PREEMPTIONS] == 0
    assert all(len(few.tokens(number)) == 100 for number in range(8))


def test_a_pool_full_of_evicting_requests_pushes_nobody_out(model: Decoder, prompts: list[list[int]]) -> None:
    """Each stays within what it may hold, and only one at a time needs more within a pass."""
    evicting = {"evict": "knorm", "budget": {"tokens": 16}, "quant": "int8"}
    few = driven(model, pages=6 * 8 + 4, **evicting)
    running = 0
    for number, ids in enumerate(prompts):
        few.engine.add(number, ids, sampling(60))
    while few.engine.has_work():
        few.step()
        running = max(running, len(few.scheduler.running))
    assert running == 8
    assert few.engine.gauges()[PREEMPTIONS] == 0


def test_a_cancelled_request_frees_its_pages_at_once_and_changes_nobody_else(
    model: Decoder, prompts: list[list[int]], expected: list[list[int]]
) -> None:
    one = driven(model, running=3)
    for number, ids in enumerate(prompts[:4]):
        one.engine.add(number, ids, sampling(20))
    for _ in range(6):
        one.step()
    held = one.store.free_pages()
    one.engine.cancel(1)
    assert one.store.free_pages() > held
    one.engine.cancel(3)  # it waits
    one.engine.cancel(1)
    one.engine.cancel(12345)
    one.drain()
    assert [one.tokens(number) for number in (0, 2)] == [expected[number][:20] for number in (0, 2)]
    assert one.tokens(3) == []
    assert one.store.free_pages() == one.store.pages
    gauges = one.engine.gauges()
    assert (gauges[REQUESTS_RUNNING], gauges[KV_USED_BYTES]) == (0, 0)
    assert gauges[KV_RESERVED_BYTES] == one.store.pages * one.store.page_bytes


def test_a_preempted_request_that_evicts_needs_no_more_than_before(model: Decoder) -> None:
    """It reads its own answer again, as much of it as its budget left the first time."""
    once = {"evict": "streaming_llm", "budget": {"tokens": 32}, "when": "prompt"}
    half = {"evict": "h2o", "budget": {"fraction": 0.5}, "when": "prompt"}
    for other in (once, half):
        few = driven(model, pages=64, eos_ids=())  # nobody ends early, and nobody is certain not to
        for number, (kv, answer) in enumerate(((None, 140), (once, 93), (other, 150))):
            prompt = [(7 * number + place) % 90 for place in range(8)]
            few.engine.add(number, prompt, sampling(answer, kv=kv, ignore_eos=False))
        few.drain()
        assert few.scheduler.preemptions >= 1
        assert few.store.free_pages() == few.store.pages


def test_a_token_that_the_model_lacks_is_refused(model: Decoder) -> None:
    with pytest.raises(ValueError, match="Token 97 is beyond the model's vocabulary of 97"):
        driven(model).engine.add(0, [1, 97], sampling(4))


def test_what_can_never_fit_is_refused_in_one_sentence(model: Decoder) -> None:
    few = driven(model, pages=6 * 4)
    with pytest.raises(
        ValueError, match=r"^65 tokens of prompt and answer may take \d+ bytes of KV cache, and"
    ):
        few.engine.add(0, [1] * 60, sampling(5))
    few.engine.add(1, [1] * 60, sampling(4))
    few.drain()
    assert len(few.tokens(1)) == 4


@pytest.mark.parametrize(
    ("kv", "words"),
    [
        ({"evikt": "h2o"}, "kv does not know evikt"),
        ({"quant": "int5"}, "kv.quant=int5 is unknown"),
        ({"recent": "many"}, "kv.recent=many must be a whole number"),
        ({"budget": 3}, "kv.budget holds one of fraction, tokens, bytes"),
        ({"evict": "h2o", "budget": {"fraction": True}}, "kv.budget.fraction=True must be a number"),
        ({"quant": "int4", "granularity": "group", "group": 7}, "group"),
        ({"quant": "int4", "granularity": "channel", "group": 2**64 - 1}, "kv.group is 1 to"),
        ({"quant": "int4", "recent": 2**64 - 1}, "kv.recent are at most"),
    ],
)
def test_a_bad_setting_of_a_request_is_refused_and_leaves_nothing(
    model: Decoder, kv: dict[str, Any], words: str
) -> None:
    one = driven(model)
    with pytest.raises(ValueError, match=words):
        one.engine.add(0, [1, 2, 3], sampling(4, kv=kv))
    assert not one.engine.has_work()
    assert one.store.used_bytes() == 0
