"""Sampling against its definitions, and an answer as it is written."""

import numpy as np
import pytest

from backends.serving.engine import Sampling
from backends.serving.sampling import Sampler, log_probabilities, most_probable
from backends.serving.writing import Writing


def sampling(**changes) -> Sampling:
    plain = {
        "max_tokens": 8,
        "min_tokens": 0,
        "ignore_eos": False,
        "temperature": 0.0,
        "top_p": 1.0,
        "seed": 0,
    }
    return Sampling(**{**plain, "logprobs": False, "prompt_logprobs": False, **changes})


def test_greedy_takes_the_first_of_the_most_probable_and_no_end_before_its_time():
    logits = np.array([1, 5, 5, 2], np.float32)
    assert Sampler(sampling(), [1]).choose(logits, 0) == 1
    bounded = Sampler(sampling(min_tokens=2), [1])
    assert [bounded.choose(logits, generated) for generated in range(3)] == [2, 2, 1]
    assert logits.tolist() == [1, 5, 5, 2]


@pytest.mark.parametrize(
    ("top_p", "temperature", "expected"),
    [
        (1.0, 1.0, [0.4, 0.3, 0.2, 0.1]),
        (0.6, 1.0, [4 / 7, 3 / 7, 0, 0]),
        (1.0, 0.5, np.square([0.4, 0.3, 0.2, 0.1]) / 0.3),
        (1e-6, 3.0, [1, 0, 0, 0]),
    ],
)
def test_samples_have_the_distribution_asked_for(top_p: float, temperature: float, expected):
    logits = np.log(np.array([0.4, 0.3, 0.2, 0.1], np.float32))
    sampler = Sampler(sampling(top_p=top_p, temperature=temperature, seed=5), [])
    counts = np.bincount([sampler.choose(logits, 0) for _ in range(4000)], minlength=4)
    assert np.abs(counts / 4000 - expected).max() < 0.03  # 4 standard deviations


def test_a_seed_gives_the_same_answer_again():
    logits = np.random.default_rng(0).random((20, 50)).astype(np.float32)
    drawn = [
        [Sampler(sampling(temperature=1.0, seed=seed), []).choose(row, 0) for row in logits]
        for seed in (1, 1)
    ]
    assert drawn[0] == drawn[1]


def test_log_probabilities_are_those_of_the_softmax():
    logits = np.array([[1000, 1001, 999], [-5, 0, 5]], np.float32)
    weights = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
    expected = np.log(weights / weights.sum(axis=1, keepdims=True))[[0, 1], [2, 0]]
    assert log_probabilities(logits, [2, 0]) == pytest.approx(expected)


def _logits(token: int) -> np.ndarray:
    return np.eye(6, dtype=np.float32)[token]


def test_an_answer_ends_by_its_length_or_by_an_end_token_that_counts():
    writing = Writing(7, sampling(max_tokens=2, logprobs=True), [5])
    outputs = [writing.take(_logits(token)) for token in (3, 4)]
    assert [(output.request_id, output.token_ids, output.finish) for output in outputs] == [
        (7, (3,), None),
        (7, (4,), "length"),
    ]
    assert outputs[0].logprobs == pytest.approx([1 - np.log(np.e + 5)])
    assert Writing(0, sampling(), [5]).take(_logits(5)).finish == "stop"
    assert Writing(0, sampling(ignore_eos=True), [5]).take(_logits(5)).finish is None


def test_log_probabilities_of_the_prompt_come_once_with_the_first_token():
    writing = Writing(0, sampling(prompt_logprobs=True), [])
    writing.read(np.stack([_logits(1), _logits(2)]), [1, 0])
    writing.read(_logits(3)[None], [3])
    told = [writing.take(_logits(4)).prompt_logprobs for _ in range(2)]
    first, *values = told[0]
    most = 1 - np.log(np.e + 5)
    assert first is None and values == pytest.approx([most, most - 1, most])
    assert told[1] is None


def test_the_most_probable_tokens_with_their_log_probabilities():
    logits = np.array([[0, 2, 2, 1], [3, 0, 0, 0]], np.float32)
    first, second = most_probable(logits, 3)
    assert [token for token, _ in first] == [1, 2, 3]  # equal ones by their ids
    total = np.log(np.exp(logits[0].astype(float)).sum())
    assert [value for _, value in first] == pytest.approx([2 - total, 2 - total, 1 - total])
    assert second[0][0] == 0
    assert sum(np.exp(value) for _, value in most_probable(logits[:1], 99)[0]) == pytest.approx(1)


def test_alternatives_come_beside_the_prompts_log_probabilities_and_the_answers():
    writing = Writing(0, sampling(prompt_logprobs=True, logprobs=True, alternatives=2), [])
    writing.read(np.stack([_logits(1), _logits(2)]), [1, 0])
    first, second = writing.take(_logits(4)), writing.take(_logits(3))
    assert first.prompt_alternatives is not None and second.prompt_alternatives is None
    begin, *known = first.prompt_alternatives
    assert begin is None and [dict(one)[token] for one, token in zip(known, (1, 2), strict=True)]
    assert [output.alternatives[0][0][0] for output in (first, second)] == [4, 3]
    plain = Writing(0, sampling(prompt_logprobs=True), [])
    plain.read(_logits(1)[None], [1])
    assert plain.take(_logits(4)).prompt_alternatives is None


def test_the_smallest_temperature_takes_the_most_probable_token():
    logits = np.array([1, 5, 4.999, -np.inf], np.float32)
    assert Sampler(sampling(temperature=1e-320), []).choose(logits, 0) == 1
