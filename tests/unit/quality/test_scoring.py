import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from harness.core.errors import EndpointError
from harness.quality.scoring import Choice, cached, choice, longest_of, margin, margins, option_shares, wilson
from tests.support.kv_engine import VOCABULARY, driven, load_tiny, sampling, tiny_llama
from tests.support.model import embedded_tokenizer
from workloads.streams import Stream


def test_margins_are_those_of_an_independent_computation_through_an_engine_that_is_fed_in_chunks(
    tmp_path: Path,
):
    model = tiny_llama(tmp_path)
    engine = driven(load_tiny(tmp_path), chunk=8)
    numbers = iter(range(1000))

    def log_probs(ids: Sequence[int]) -> Sequence[float | None]:
        number = next(numbers)
        engine.engine.add(number, tuple(ids), sampling(1, prompt_logprobs=True))
        engine.drain()
        return engine.prompt_logprobs(number)

    stream = Stream(0, "test")
    ids = [stream.below(VOCABULARY) for _ in range(21)]
    options = [[stream.below(VOCABULARY) for _ in range(count)] for count in (3, 3, 2)]
    for wanted in (options[:2], options):  # equal in length, then not

        def score(option: list[int], even: bool) -> float:
            with torch.inference_mode():
                logits = model(torch.tensor([[*ids, *option]])).logits[0].double().numpy()
            shifted = logits - logits.max(axis=1, keepdims=True)
            table = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
            values = [table[len(ids) + i - 1, token] for i, token in enumerate(option)]
            return float(np.sum(values) if even else np.mean(values))

        even = len(wanted) == 2
        first, *others = [score(option, even) for option in wanted]
        item = Choice(tuple(ids), tuple(map(tuple, wanted)))
        assert margin(item, log_probs) == pytest.approx(first - max(others), abs=1e-3)


@given(
    st.lists(st.integers(0, 99_999), min_size=2, max_size=5, unique=True), st.text("abc .:=\n", max_size=20)
)
@settings(deadline=None)
def test_the_prompt_is_the_same_for_every_option_and_nothing_is_lost(values: list[int], stem: str):
    tokenizer = embedded_tokenizer()
    options = [f" {value}" for value in values]
    item = choice(tokenizer, (7, 8), f"x{stem}", options)
    assert item.ids[:2] == (7, 8)
    for option, ids in zip(options, item.options, strict=True):
        assert ids
        assert list(item.ids[2:] + ids) == tokenizer.encode(f"x{stem}{option}")
    assert len(set(item.options)) == len(options)
    assert longest_of([item]) == len(item.ids) + max(map(len, item.options)) + 1


def test_one_that_guesses_is_at_chance_and_one_that_knows_is_right():
    items = [Choice((1, 2, 3), ((i, 1), (i, 2), (i, 3), (i, 4))) for i in range(2000)]
    stream = Stream(1, "guess")

    def guess(ids: Sequence[int]) -> Sequence[float | None]:
        return [None, *(-stream.uniform() for _ in ids[1:])]

    def know(ids: Sequence[int]) -> Sequence[float | None]:
        return [None, *(-1.0 for _ in ids[2:]), -0.1 if ids[-1] == 1 else -1.0]

    guessed = option_shares("x", items, margins(items, guess), 2)
    assert guessed["x_chance"] == 0.25
    assert guessed["x_interval"][0] < 0.25 < guessed["x_interval"][1]
    assert guessed["x_above_chance"] is False
    knew = option_shares("x", items, margins(items, know), 2)
    assert (knew["x"], knew["x_items"], knew["x_above_chance"]) == (1.0, 2000, True)
    assert knew["x_log_probs"] == pytest.approx([0.9] * 2000)
    assert knew["x_cached"] == pytest.approx(2 / 3)


def test_equal_scores_are_no_answer_and_prompts_with_several_questions_are_one_item():
    items = [Choice((1,), ((2,), (3,)))] * 5
    found = option_shares("x", items, [0.0, 0.2, -0.2, 0.1, 0.3], None, groups=[0, 0, 1, 1, 2])
    assert found["x_right"] == [0.5, 0.5, 1.0]
    assert found["x_log_probs"] == pytest.approx([0.1, -0.05, 0.3])
    assert (found["x"], found["x_items"], found["x_cached"]) == (pytest.approx(2 / 3), 3, None)


@pytest.mark.parametrize(
    ("prompt", "chunk", "share"), [(64, 64, 0.0), (65, 64, 64 / 65), (128, 64, 0.5), (9, 4, 8 / 9)]
)
def test_what_an_option_reads_from_the_cache(prompt: int, chunk: int, share: float):
    # The token that predicts an option's first one is the prompt's last; the chunks complete before it are read.
    written = [position for position in range(prompt) if position // chunk < (prompt - 1) // chunk]
    assert cached(prompt, chunk) == share == len(written) / prompt


@given(st.integers(1, 300), st.data())
def test_the_interval_is_wilsons(of: int, data: st.DataObject):
    hits = data.draw(st.integers(0, of))
    truth = binomtest(hits, of).proportion_ci(0.95, method="wilson")
    assert wilson(hits, of) == pytest.approx([truth.low, truth.high], abs=1e-12)


@pytest.mark.parametrize("answer", [[], [None, -1.0], [None, -1.0, None], [None, -1.0, -math.inf]])
def test_incomplete_log_probabilities_are_an_error(answer: list[float | None]):
    with pytest.raises(EndpointError, match="incomplete"):
        margin(Choice((5, 6), ((7,), (8,))), lambda ids: answer)
