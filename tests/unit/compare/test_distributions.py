"""The divergence of two runs against Σ p log(p / q) over whole distributions, which it must never exceed."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.compare.distributions import distance
from harness.compare.resampling import interval_of_mean, interval_of_median


def table(distributions: np.ndarray, known: int, own: int = 0) -> pd.DataFrame:
    """What an engine tells of [prompts, positions, vocabulary]: token `own`, and the `known` most probable ones."""
    rows = [
        (prompt, position, token, np.log(distributions[prompt, position, token]))
        for prompt, position in np.ndindex(distributions.shape[:2])
        for token in sorted({own, *np.argsort(-distributions[prompt, position])[:known].tolist()})
    ]
    return pd.DataFrame(rows, columns=["prompt", "position", "token", "log_prob"])


def drawn(seed: int, spread: float = 1.0) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.full(12, spread), (3, 4)) * 0.99 + 0.01 / 12


def whole(p: np.ndarray, q: np.ndarray) -> float:
    return float((p * np.log(p / q)).sum(axis=-1).mean())


def test_with_all_tokens_known_it_is_the_divergence():
    p, q = drawn(1), drawn(2)
    found = distance(table(p, 12), table(q, 12))
    assert found is not None
    assert found.nats == pytest.approx(whole(p, q), rel=1e-6)
    assert found.told == pytest.approx(1)
    assert (found.positions, found.prompts) == (12, 3)
    assert found.same_best == (p.argmax(axis=-1) == q.argmax(axis=-1)).mean()
    assert found.interval is not None and found.interval[0] <= found.nats <= found.interval[1]


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 999), st.integers(0, 999), st.integers(0, 12))
def test_with_some_known_it_is_a_lower_bound_that_grows_with_them(one: int, other: int, known: int):
    p, q = drawn(one), drawn(other, 0.5)
    found = distance(table(p, known), table(q, known))
    assert found is not None
    assert -1e-9 <= found.nats <= whole(p, q) + 1e-9


def test_the_same_run_is_no_distance_away():
    found = distance(table(drawn(1), 5), table(drawn(1), 5))
    assert found is not None
    assert found.nats == pytest.approx(0, abs=1e-9)
    assert found.same_best == 1


def test_the_texts_own_token_alone_says_nothing_of_the_best():
    found = distance(table(drawn(1), 0), table(drawn(2), 0))
    assert found is not None and found.same_best is None and found.told < 0.5


def test_other_positions_are_not_compared():
    assert distance(table(drawn(1), 5), table(drawn(1)[:, :3], 5)) is None
    assert distance(table(drawn(1)[:0], 5), table(drawn(1)[:0], 5)) is None


def test_intervals_hold_the_mean_of_few_prompts_about_as_often_as_they_say():
    random = np.random.default_rng(5)
    ends = [interval_of_mean(random.gamma(4, 0.25, 8)) for _ in range(200)]
    assert np.mean([low <= 1 <= high for low, high in ends]) >= 0.9  # type: ignore[misc]
    assert interval_of_mean([1.0]) is None
    assert interval_of_median([3, 3, 3]) == (3, 3)
