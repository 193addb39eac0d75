"""Scores against numpy, on slots in no order and with padding; and what the store sums against dense attention."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.kvcompress.contracts import LayerView, Slots
from backends.kvcompress.policies import POLICIES, policy
from backends.kvcompress.policies.auto import Auto
from backends.kvcompress.policies.expected_attention import ExpectedAttention
from backends.kvcompress.policies.lagkv import LagKv
from backends.kvcompress.policies.snapkv import SnapKv
from harness.core.errors import UsageError
from tests.support.kv import spec
from tests.support.kv_play import TurningPairs, attention_over, dense, play, run_pass, stream
from tests.support.kv_store import ListStore

HEADS, SHARED, SIZE, SINKS = 2, 3, 8, 4


def view_of(
    counts: tuple[int, int] = (40, 33), window: int = 0, budget: int = 20, seed: int = 0
) -> LayerView:
    """Heads that hold different numbers of 60 tokens, in no order; the window is the latest positions."""
    generator = torch.Generator().manual_seed(seed)
    most, seen = max(counts), 60
    keys, values = torch.randn(2, HEADS, most, SIZE, generator=generator)
    attention = torch.rand(HEADS, most, generator=generator)
    positions = torch.stack([torch.randperm(seen, generator=generator)[:most] for _ in counts])
    for head, count in enumerate(counts):
        keys[head, count:], values[head, count:], attention[head, count:] = 0, 0, 0
        positions[head, count:] = -1
    queries = torch.randn(HEADS * SHARED, window, SIZE, generator=generator) if window else None
    places = torch.arange(seen - window, seen) if window else None
    slots = Slots(keys, values, positions, positions < 0, attention)
    return LayerView(slots, queries, places, seen, budget, SINKS, layer=1, layers=2, rope=TurningPairs())


def live(view: LayerView, head: int) -> tuple[np.ndarray, ...]:
    """keys, values, positions, attention of what the head holds, in the order of positions."""
    slots = view.slots
    order = [i for i in slots.positions[head].argsort().tolist() if slots.positions[head, i] >= 0]
    return tuple(
        held[head, order].double().numpy()
        for held in (slots.keys, slots.values, slots.positions, slots.attention)
    )


def scored(name: str, view: LayerView, head: int) -> np.ndarray:
    scores, positions = policy(name).score(view)[head], view.slots.positions[head]
    order = [i for i in positions.argsort().tolist() if positions[i] >= 0]
    return scores[order].double().numpy()


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_the_order_of_slots_does_not_matter(name: str) -> None:
    view = view_of(window=8 if policy(name).window else 0)
    order = torch.randperm(view.slots.positions.shape[1])
    fields = ("keys", "values", "positions", "packed", "attention")
    shuffled = Slots(*(getattr(view.slots, field)[:, order] for field in fields))
    held = view.slots.positions[:, order] >= 0
    plain = policy(name).score(view)[:, order]
    torch.testing.assert_close(policy(name).score(replace(view, slots=shuffled))[held], plain[held])


@pytest.mark.parametrize("head", range(HEADS))
def test_scores_of_keys_alone(head: int) -> None:
    view = view_of()
    keys, _, positions, _ = live(view, head)
    np.testing.assert_allclose(scored("knorm", view, head), -np.sqrt((keys**2).sum(1)), rtol=1e-5)
    directions = keys / np.linalg.norm(keys, axis=1, keepdims=True)
    mean = directions.mean(0)
    cosines = keys @ mean / np.linalg.norm(keys, axis=1) / np.linalg.norm(mean)
    np.testing.assert_allclose(scored("keydiff", view, head), -cosines, rtol=1e-4, atol=1e-6)
    assert (np.diff(scored("streaming_llm", view, head)) > 0).all()
    assert (np.diff(positions) > 0).all()


@pytest.mark.parametrize("head", range(HEADS))
def test_scores_of_summed_attention(head: int) -> None:
    view = view_of()
    _, _, positions, attention = live(view, head)
    np.testing.assert_allclose(scored("h2o_rate", view, head), attention / (60 - positions), rtol=1e-5)
    by_h2o = scored("h2o", view, head)
    latest = positions > max(live(view, h)[2].max() for h in range(HEADS)) - view.budget // 2
    np.testing.assert_allclose(by_h2o[~latest], attention[~latest], rtol=1e-6)
    assert by_h2o[latest].min() > by_h2o[~latest].max() and (np.diff(by_h2o[latest]) > 0).all()
    others = [
        dict(zip(live(view, h)[2].tolist(), live(view, h)[3].tolist(), strict=True)) for h in range(HEADS)
    ]
    expected = [np.mean([of[p] for of in others if p in of]) for p in positions.tolist()]
    np.testing.assert_allclose(scored("tova", view, head), expected, rtol=1e-5)


@pytest.mark.parametrize("head", range(HEADS))
def test_snapkv_is_the_pooled_mean_of_the_windows_attention(head: int) -> None:
    view = view_of(window=6)
    keys, _, positions, _ = live(view, head)
    assert view.queries is not None
    queries = view.queries[head * SHARED : (head + 1) * SHARED].double().numpy()
    scores = queries @ keys.T / math.sqrt(SIZE)
    scores[:, np.arange(54, 60)[:, None] < positions[None]] = -np.inf
    given_ = np.exp(scores)
    given_ = (given_ / given_.sum(-1, keepdims=True)).mean((0, 1))
    own = positions >= 54
    padded = np.concatenate((np.zeros(2), np.where(own, 0, given_), np.zeros(2)))
    pooled = np.lib.stride_tricks.sliding_window_view(padded, SnapKv.KERNEL).mean(1)
    found = scored("snapkv", view, head)
    np.testing.assert_allclose(found[~own], pooled[~own], rtol=1e-4)
    assert not own.any() or (found[own].min() > found[~own].max() and (np.diff(found[own]) > 0).all())


@pytest.mark.parametrize("head", range(HEADS))
def test_lagkv_ranks_by_what_differs_from_the_part_that_follows(
    head: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LagKv, "LAG", 8)
    view = view_of()
    keys, values, positions, _ = live(view, head)
    keys, values = keys[positions >= SINKS], values[positions >= SINKS]
    parts = len(keys) // 8

    def scatter(vectors: np.ndarray, part: int) -> np.ndarray:
        mine, following = vectors[part * 8 : part * 8 + 8], vectors[part * 8 + 8 : part * 8 + 16]
        low, high = following.min(0), following.max(0)
        spread = np.exp(((mine - low) / (high - low)).std(1, ddof=1))
        return spread / spread.sum()

    found = scored("lagkv", view, head)[positions >= SINKS]
    for part in range(parts - 1):
        expected = (scatter(keys, part) + scatter(values, part)).argsort().argsort() / 8
        np.testing.assert_allclose(found[part * 8 : part * 8 + 8], expected, rtol=1e-5)
    stays = found[(parts - 1) * 8 :]
    assert stays.min() > 1 and (np.diff(stays) > 0).all()


def test_expected_attention_is_the_normal_distributions_expectation() -> None:
    view = view_of(window=20)
    assert view.queries is not None and view.query_positions is not None
    rope, size = view.rope, SIZE
    plain = rope.rotate(view.queries, -view.query_positions)
    turns = [
        rope.rotate(torch.eye(size), torch.tensor(60 + step)).double().numpy()
        for step in range(ExpectedAttention.FUTURE)
    ]
    turn = np.mean(turns, 0).T  # of column vectors
    for head in range(HEADS):
        keys, values, positions, _ = live(view, head)
        keys, values = keys[positions >= SINKS], values[positions >= SINKS]
        by_query_head = []
        for query_head in range(head * SHARED, (head + 1) * SHARED):
            asked = plain[query_head].double().numpy()
            mean, spread = turn @ asked.mean(0), turn @ np.cov(asked.T, bias=True) @ turn.T
            exponents = keys @ mean / math.sqrt(size) + np.einsum("ni,ij,nj->n", keys, spread, keys) / (
                2 * size
            )
            weights = np.exp(exponents - exponents.max())
            by_query_head.append(weights / weights.sum())
        expected = np.mean(by_query_head, 0) * np.linalg.norm(values, axis=1)
        found = scored("expected_attention", view, head)[positions >= SINKS]
        np.testing.assert_allclose(found, expected, rtol=1e-3)


def test_expected_attention_foresees_queries_drawn_from_one_normal_distribution() -> None:
    """At positions that do not turn, the expectation of exp(q·k) is the mean over many queries."""

    class Still:
        def rotate(self, vectors: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
            return vectors.expand(
                torch.broadcast_shapes(vectors.shape, (*positions.shape, vectors.shape[-1]))
            )

    view = replace(view_of(window=1), rope=Still(), sinks=0)
    generator = torch.Generator().manual_seed(1)
    queries = torch.randn(HEADS * SHARED, 20_000, SIZE, generator=generator)
    view = replace(view, queries=queries, query_positions=torch.full((20_000,), 60))
    found = policy("expected_attention").score(view)
    for head in range(HEADS):
        keys, values, _, _ = live(view, head)
        each = np.exp(
            queries[head * SHARED : (head + 1) * SHARED].double().numpy() @ keys.T / math.sqrt(SIZE)
        ).mean(1)
        expected = (each / each.sum(-1, keepdims=True)).mean(0) * np.linalg.norm(values, axis=1)
        order = [
            i for i in view.slots.positions[head].argsort().tolist() if view.slots.positions[head, i] >= 0
        ]
        np.testing.assert_allclose(found[head, order].numpy(), expected, rtol=0.1)


@pytest.mark.parametrize("name", ["snapkv", "expected_attention"])
def test_while_decoding_the_summed_attention_stands_for_the_window(name: str) -> None:
    view = view_of()
    for head in range(HEADS):
        _, values, _, attention = live(view, head)
        padded = np.concatenate((np.zeros(2), attention, np.zeros(2)))
        pooled = np.lib.stride_tricks.sliding_window_view(padded, 5).mean(1)
        expected = pooled if name == "snapkv" else attention * np.linalg.norm(values, axis=1)
        np.testing.assert_allclose(scored(name, view, head), expected, rtol=1e-5)


def test_random_draws_evenly_and_each_head_by_itself() -> None:
    positions = torch.arange(4096).expand(HEADS, -1)
    empty = torch.zeros(HEADS, 4096)
    slots = Slots(empty[..., None], empty[..., None], positions, empty.bool(), empty)
    view = replace(view_of(), slots=slots)
    scores = policy("random").score(view)
    assert scores.min() >= 0 and scores.max() < 1
    counts = np.histogram(scores.numpy(), 16, (0, 1))[0]
    assert ((counts - 512) ** 2 / 512).sum() < 45  # chi square of 15 degrees of freedom: p < 1e-4 beyond
    assert abs(np.corrcoef(scores.numpy())[0, 1]) < 0.08
    assert abs(np.corrcoef(scores[0, :-1].numpy(), scores[0, 1:].numpy())[0, 1]) < 0.08
    assert not torch.equal(scores, policy("random").score(replace(view, layer=0)))


@pytest.mark.parametrize("head", range(HEADS))
def test_auto_ranks_by_attention_a_query_below_the_latest(head: int) -> None:
    view = view_of(budget=20)
    _, _, positions, attention = live(view, head)
    found, latest = scored("auto", view, head), positions >= 60 - 5
    np.testing.assert_allclose(found[~latest], (attention / (60 - positions))[~latest], rtol=1e-5)
    assert found[latest].min() > found[~latest].max() and (np.diff(found[latest]) > 0).all()


def test_the_latest_queries_of_a_chunk_stand_for_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Auto, "sample", 3)
    tokens = stream(20)
    attention = attention_over(store := ListStore(2, 2, 8))
    row = attention.open(spec(evict="auto", budget={"fraction": 1.0}), 20)
    for first, count in ((0, 12), (12, 6), (18, 2)):
        run_pass(attention, (row, tokens, first, count, first + count == 20))
    weights = torch.zeros(20)
    weights[9:12], weights[15:18], weights[18:20] = 12 / 3, 6 / 3, 1
    held = store.read(1, row)
    expected = (dense(tokens, 1) * weights[:, None]).sum(1).unflatten(0, (2, 2)).sum(1)
    torch.testing.assert_close(held.attention, expected.gather(1, held.positions))


@given(chunk=st.integers(1, 30), prompt=st.integers(1, 30), name=st.sampled_from(["h2o", "tova"]))
@settings(max_examples=12, deadline=None)
def test_the_store_is_told_the_attention_that_dense_attention_gives(
    chunk: int, prompt: int, name: str
) -> None:
    tokens = stream(32, query_heads=6)
    attention = attention_over(store := ListStore(2, 2, 8))
    row = attention.open(spec(evict=name, budget={"fraction": 1.0}), prompt)
    play(attention, row, tokens, prompt, chunk)
    for layer in range(2):
        probabilities = dense(tokens, layer).unflatten(0, (2, 3)).sum(1)
        expected = probabilities.sum(1) if name == "h2o" else probabilities[:, -1]
        held = store.read(layer, row)
        torch.testing.assert_close(held.attention, expected.gather(1, held.positions))


@pytest.mark.parametrize("chunk", [7, 19, 29])
@pytest.mark.parametrize(
    "name", sorted(POLICIES.keys() - {"none", "auto"})
)  # which samples each chunk's queries
def test_what_is_kept_at_the_prompts_end_does_not_depend_on_its_chunks(name: str, chunk: int) -> None:
    tokens = stream(30)
    kept = []
    for size in (30, chunk):
        attention = attention_over(store := ListStore(2, 2, 8))
        row = attention.open(spec(evict=name, budget={"tokens": 15}, recent=2, when="prompt"), 30)
        play(attention, row, tokens, 30, size)
        kept.append(
            [sorted(head) for layer in range(2) for head in store.read(layer, row).positions.tolist()]
        )
    assert kept[0] == kept[1]


def test_a_chunk_after_the_prompt_is_looked_at_too() -> None:
    tokens = stream(50)
    attention = attention_over(store := ListStore(2, 2, 8))
    row = attention.open(spec(evict="snapkv", budget={"tokens": 12}, recent=2, when="prompt"), 30)
    run_pass(attention, (row, tokens, 0, 30, True))
    run_pass(attention, (row, tokens, 30, 20, False))
    assert store.counts(1, row) == [12, 12]
    assert set(range(48, 50)) <= set(store.read(1, row).positions[0].tolist())


def test_an_unknown_policy_names_the_choices() -> None:
    with pytest.raises(UsageError, match="streaming_llm"):
        policy("magic")


@pytest.mark.parametrize("name", ["snapkv", "expected_attention"])
def test_the_prompts_last_queries_are_known_when_decoding_begins(name: str) -> None:
    tokens = stream(32)
    attention = attention_over(store := ListStore(2, 2, 8))
    row = attention.open(spec(evict=name, budget={"fraction": 1.0}), 30)
    play(attention, row, tokens, 30, 12)
    weights = (1 - 1 / 64) ** torch.arange(31, -1, -1).float()
    weights[:24] = 0  # the last chunk begins there
    for layer in range(2):
        expected = torch.einsum("t,hts->hs", weights, dense(tokens, layer).unflatten(0, (2, 2)).sum(1))
        held = store.read(layer, row)
        torch.testing.assert_close(held.attention, expected.gather(1, held.positions))
