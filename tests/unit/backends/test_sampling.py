"""Log-probabilities by logits of 32 bits, held against those of 64."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import log_softmax

from backends.serving.sampling import log_probabilities, most_probable

_VOCABULARY = 50_000


@given(st.integers(0, 2**32 - 1), st.floats(0, 30), st.floats(-100, 100))
def test_they_are_those_of_64_bits(seed: int, spread: float, level: float):
    random = np.random.default_rng(seed)
    logits = (level + spread * random.standard_normal((2, _VOCABULARY))).astype(np.float32)
    exact = log_softmax(logits.astype(np.float64), axis=-1)
    tokens = random.integers(_VOCABULARY, size=2).tolist()
    assert np.allclose(log_probabilities(logits, tokens), exact[[0, 1], tokens], rtol=0, atol=2e-6)
    for row, best in zip(exact, most_probable(logits, 3), strict=True):
        assert np.allclose([value for _, value in best], np.sort(row)[:-4:-1], rtol=0, atol=2e-6)


def test_a_token_that_cannot_be_has_no_probability_and_takes_none():
    logits = np.array([[0.0, -np.inf, 0.0]], dtype=np.float32)
    assert log_probabilities(logits, [1]) == [-np.inf]
    assert np.isclose(log_probabilities(logits, [0])[0], np.log(0.5))
