"""The pool against a plain dictionary of rows, and sampling against its definitions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.onnxruntime.kv_pool import KvPool
from backends.onnxruntime.sampling import Sampler, log_probabilities
from backends.serving.engine import Sampling

TENSORS, HEADS, WIDTH = 2, 3, 4
TOKEN = TENSORS * HEADS * WIDTH * 4


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


def test_it_takes_what_it_was_given_to_the_token():
    pool = KvPool(TENSORS, HEADS, WIDTH, np.float32, 10 * TOKEN + TOKEN - 1)
    assert (pool.bytes_per_token, pool.capacity, pool.reserved_bytes) == (TOKEN, 10, 10 * TOKEN)
    assert pool.fits(2, 5)
    assert not pool.fits(2, 6)


@settings(deadline=None)
@given(st.data())
def test_rows_keep_their_entries_through_every_change(data: st.DataObject):
    pool = KvPool(TENSORS, HEADS, WIDTH, np.float32, 60 * TOKEN)
    pool.lay_out(data.draw(st.integers(1, 12)), [])
    rows: list[list[np.ndarray]] = []
    for number in range(5):
        length = data.draw(st.integers(0, pool.stride))
        rows.append([])
        for tensor in range(TENSORS):
            entries = np.random.default_rng([number, tensor]).random((HEADS, length, WIDTH), dtype=np.float32)
            pool.entries(tensor, number, length)[:] = entries
            rows[-1].append(entries)
    for _ in range(data.draw(st.integers(1, 6))):
        lengths = [row[0].shape[1] for row in rows]
        what = data.draw(st.sampled_from(["lay out", "move", "exchange"]))
        if what == "lay out":
            pool.lay_out(data.draw(st.integers(max([1, *lengths]), 12)), lengths)
            continue
        one, other = data.draw(st.integers(0, 4)), data.draw(st.integers(0, 4))
        if what == "move":
            pool.move(one, other, lengths[one])
            rows[other] = rows[one]
        else:
            pool.exchange(one, other, max(lengths[one], lengths[other]))
            rows[one], rows[other] = rows[other], rows[one]
    for number, row in enumerate(rows):
        for tensor in range(TENSORS):
            assert np.array_equal(pool.entries(tensor, number, row[tensor].shape[1]), row[tensor])


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
