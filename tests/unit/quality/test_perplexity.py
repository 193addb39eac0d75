import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core.errors import EndpointError
from harness.quality.perplexity import bootstrap_interval, perplexity, windows
from tests.support.model import embedded_tokenizer


@given(st.integers(0, 400), st.integers(2, 100), st.data())
def test_windows_predict_each_position_at_most_once(length: int, window: int, data: st.DataObject):
    stride = data.draw(st.integers(1, window))
    parts = windows(length, window, stride)
    scored = [position for part in parts for position in range(part.scored_from, part.end)]
    assert len(scored) == len(set(scored))
    assert all(0 <= part.start < part.scored_from < part.end <= length for part in parts)
    assert all(part.end - part.start <= window for part in parts)
    # Overlapping windows predict all but the very first position; independent ones also skip each window's first.
    if stride < window:
        assert sorted(scored) == list(range(1, length))
    else:
        assert sorted(scored) == [p for p in range(length) if p % stride]


def test_a_uniform_model_has_the_vocabulary_as_perplexity():
    tokenizer = embedded_tokenizer()
    ids = tokenizer.encode("The cache grows with every token of context.")
    result = perplexity(
        ids, 100, 100, lambda window: [None] + [-math.log(500)] * (len(window) - 1), tokenizer
    )
    assert result["perplexity"] == pytest.approx(500)
    assert result["predicted_tokens"] == len(ids) - 1
    predicted_bytes = len(tokenizer.decode(ids[1:]).encode())
    assert result["bits_per_byte"] == pytest.approx(math.log2(500) * (len(ids) - 1) / predicted_bytes)
    assert result["perplexity_interval"] is None


def test_bytes_are_those_of_the_text_wherever_windows_cut_it():
    tokenizer = embedded_tokenizer()
    text = "x" + "\U0001f9ea\U0001f9ec" * 8  # characters of several tokens: windows begin inside of them
    ids = tokenizer.encode(text)
    assert len(ids) > 2 * len(text)
    result = perplexity(ids, 7, 5, lambda window: [-math.log(2)] * len(window), tokenizer)
    assert result["bits_per_byte"] == pytest.approx((len(ids) - 1) / (len(text.encode()) - 1))


def test_sliding_windows_use_the_context_of_their_window():
    tokenizer = embedded_tokenizer()
    ids = list(range(300, 350))
    seen = []

    def log_probs(window):
        seen.append(list(window))
        return [None, *(-float(position) for position in range(1, len(window)))]

    result = perplexity(ids, window=20, stride=10, log_probs=log_probs, tokenizer=tokenizer)
    assert seen == [ids[0:20], ids[10:30], ids[20:40], ids[30:50]]
    expected = [sum(range(1, 20)), *[sum(range(10, 20))] * 3]
    assert result["window_nll"] == pytest.approx(expected)
    assert result["window_tokens"] == [19, 10, 10, 10]
    assert result["perplexity"] == pytest.approx(math.exp(sum(expected) / 49))


@pytest.mark.parametrize(
    "answer", [[], [None, -1.0], [None, -1.0, None, -1.0], [None, -1.0, -math.inf, -1.0]]
)
def test_incomplete_log_probabilities_are_an_error(answer):
    with pytest.raises(EndpointError, match="incomplete"):
        perplexity([5, 6, 7, 8], 10, 10, lambda window: answer, embedded_tokenizer())


def test_the_interval_covers_the_truth_as_often_as_it_says():
    # Windows whose mean negative log-likelihood is normal around log(20): a known truth.
    generator = np.random.default_rng(5)
    covered = 0
    trials = 200
    for _ in range(trials):
        sums = generator.normal(math.log(20), 0.1, 40) * 100
        low, high = bootstrap_interval(list(sums), [100] * 40)
        covered += low <= 20 <= high
    assert 0.88 <= covered / trials <= 0.99


def test_perplexity_is_told_by_the_length_of_the_context():
    """A token after c others costs c/10 nats here, so a part's perplexity is e to the mean of its lengths / 10."""
    tokenizer = embedded_tokenizer()

    def log_probs(window):
        return [None, *(-place / 10 for place in range(1, len(window)))]

    result = perplexity(list(range(300, 350)), window=20, stride=10, log_probs=log_probs, tokenizer=tokenizer)
    parts = result["perplexity_by_position"]
    assert [part["from"] for part in parts] == [0, 2, 5, 7, 10, 12, 15, 17]
    assert parts[0]["tokens"] == 1  # place 1 of the first window; place 0 is never predicted
    assert sum(part["tokens"] for part in parts) == result["predicted_tokens"]
    for part in parts:
        lengths = range(max(part["from"], 1), part["to"])
        assert part["perplexity"] == pytest.approx(math.exp(sum(lengths) / len(lengths) / 10))
