"""Attention over the store against dense causal attention, and what is left of a request after eviction."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.kvcompress.given import add_given, by_torch
from backends.kvcompress.policies import POLICIES
from backends.kvcompress.prefill import attend_chunk
from harness.core.errors import UsageError
from tests.support.kv import spec
from tests.support.kv_play import Stream, attention_over, dense_results, play, run_pass, stream
from tests.support.kv_store import ListStore

EVICTING = sorted(POLICIES.keys() - {"none"})


@given(chunk=st.integers(1, 40), prompt=st.integers(1, 40), page_slots=st.sampled_from([1, 8, 64]))
@settings(max_examples=12, deadline=None)
def test_everything_kept_is_dense_attention(chunk: int, prompt: int, page_slots: int) -> None:
    tokens = stream(44)
    attention = attention_over(ListStore(2, 2, 8, page_slots=page_slots))
    row = attention.open(spec(), prompt)
    torch.testing.assert_close(play(attention, row, tokens, prompt, chunk), dense_results(tokens))


@pytest.mark.parametrize("page_slots", [1, 7, 64])
@pytest.mark.parametrize("spread", ["uniform", "pyramid", "adakv"])
@pytest.mark.parametrize("evict", EVICTING)
def test_a_budget_of_everything_changes_nothing(evict: str, spread: str, page_slots: int) -> None:
    tokens = stream(40)
    for budget in ({"fraction": 1.0}, {"tokens": 40}):
        attention = attention_over(ListStore(2, 2, 8, page_slots=page_slots))
        row = attention.open(spec(evict=evict, budget=budget, spread=spread), 30)
        torch.testing.assert_close(play(attention, row, tokens, 30, 11), dense_results(tokens))


def test_requests_in_one_pass_do_not_touch_each_other() -> None:
    settings_ = [
        spec(),
        spec(evict="streaming_llm", budget={"tokens": 12}),
        spec(evict="knorm", budget={"tokens": 14}),
    ]
    streams = [stream(30, seed=seed) for seed in range(3)]
    alone = []
    for each, tokens in zip(settings_, streams, strict=True):
        attention = attention_over(ListStore(2, 2, 8))
        alone.append(play(attention, attention.open(each, 20), tokens, 20, 20))
    attention = attention_over(ListStore(2, 2, 8))
    rows = [attention.open(each, 20) for each in settings_]
    parts: list[list[torch.Tensor]] = [[], [], []]
    for turn in range(33):  # request n reads its prompt in pass n and decodes from then on
        reading = (rows[turn], streams[turn], 0, 20, True) if turn < 3 else None
        steps = [n for n in range(3) if n < turn and 19 + turn - n < 30]
        if reading is None and not steps:
            break
        result = run_pass(attention, reading, [(rows[n], streams[n], 19 + turn - n) for n in steps])
        if reading is not None:
            parts[turn].append(result[:, :20])
        for index, n in enumerate(steps):
            parts[n].append(result[:, (20 if reading else 0) + index][:, None])
    for n in range(3):
        torch.testing.assert_close(torch.cat(parts[n], 1), alone[n])


def test_a_prompt_that_is_compressed_at_its_end_is_read_in_full() -> None:
    tokens = stream(30)
    store = ListStore(2, 2, 8)
    attention = attention_over(store)
    row = attention.open(spec(evict="knorm", budget={"tokens": 10}, when="prompt"), 30)
    torch.testing.assert_close(play(attention, row, tokens, 30, 7), dense_results(tokens))
    assert store.counts(0, row) == [10, 10]


def test_streaming_llm_attends_to_sinks_and_window() -> None:
    """Against dense attention in which all but the first and the latest tokens are masked, once decoding goes on."""
    tokens = stream(60)
    attention = attention_over(store := ListStore(2, 2, 8))
    row = attention.open(spec(evict="streaming_llm", budget={"tokens": 14}, recent=3), 20)
    held: list[set[int]] = []
    results = play(
        attention,
        row,
        tokens,
        20,
        20,
        lambda seen: held.append(set(store.read(0, row).positions[0].tolist())),
    )
    for seen, positions in zip(range(20, 61), held, strict=True):
        assert {0, 1, 2, 3} <= positions and len(positions) <= 14
        assert positions - {0, 1, 2, 3} == set(range(seen - len(positions) + 4, seen))
    last = sorted(held[-1])
    again = _attend(tokens, 1, 59, torch.tensor(last), torch.tensor(last))
    torch.testing.assert_close(results[1, 59], again)


def test_reindexed_positions_are_those_within_the_cache() -> None:
    """The keys that are left count 0, 1, 2 … as does the query after them, whatever their tokens' positions were."""
    tokens = stream(50)
    attention = attention_over(store := ListStore(2, 2, 8))
    row = attention.open(spec(evict="streaming_llm", budget={"tokens": 12}, reindex=True), 30)
    seen_at_last: list[int] = []
    results = play(attention, row, tokens, 30, 9, lambda seen: seen_at_last.append(store.counts(1, row)[0]))
    count = seen_at_last[-1]
    kept = torch.tensor([0, 1, 2, 3, *range(50 - count + 4, 50)])
    expected = _attend(tokens, 1, 49, kept, torch.arange(count))
    torch.testing.assert_close(results[1, 49], expected, atol=1e-4, rtol=1e-4)
    assert sorted(store.read(1, row).positions[0].tolist()) == list(range(count))


def _attend(tokens: Stream, layer: int, query: int, kept: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """The query's attention over the kept tokens, as if they stood at `places` and it at the last of them."""
    from tests.support.kv_play import TurningPairs

    rope = TurningPairs()
    turned = rope.rotate(tokens.keys[layer, kept], (places - kept)[:, None]).repeat_interleave(2, 1)
    asked = rope.rotate(tokens.queries[layer, query], places[-1] - query)
    weights = torch.softmax(torch.einsum("qd,nqd->qn", asked, turned) / 8**0.5, -1)
    return torch.einsum("qn,nqd->qd", weights, tokens.values[layer, kept].repeat_interleave(2, 1))


def test_what_does_not_go_together_is_refused_and_leaves_no_row() -> None:
    store = ListStore(2, 2, 8)
    attention = attention_over(store)
    for changes in (
        {"evict": "magic", "budget": {"tokens": 9}},
        {"evict": "streaming_llm", "budget": {"tokens": 9}, "reindex": True, "spread": "adakv"},
        {"evict": "knorm", "budget": {"bytes": 100}},
    ):
        with pytest.raises(UsageError):
            attention.open(spec(**changes), 10)
    assert not store.rows


@given(
    tokens=st.integers(1, 70),
    before=st.integers(0, 50),
    heads=st.integers(1, 3),
    shared=st.integers(1, 5),
    weighted=st.integers(1, 70),
    seed=st.integers(0, 99),
)
@settings(max_examples=30, deadline=None)
def test_a_chunk_attends_to_held_slots_and_its_own_past(
    tokens: int, before: int, heads: int, shared: int, weighted: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    slots = before + tokens
    queries = torch.randn(tokens, heads * shared, 8, generator=generator)
    keys, values = torch.randn(2, heads, slots, 8, generator=generator)
    missing = torch.zeros(heads, slots, dtype=torch.bool)
    missing[:, :before] = torch.rand(heads, before, generator=generator) < 0.3
    weights = torch.rand(min(weighted, tokens), generator=generator)
    result, summed = attend_chunk(queries, keys, values, missing if missing.any() else None, weights)
    hidden = missing[:, None] | torch.ones(tokens, slots, dtype=torch.bool).triu(before + 1)
    scores = torch.einsum("tqd,qsd->qts", queries, keys.repeat_interleave(shared, 0)) / 8**0.5
    probabilities = torch.softmax(scores.masked_fill(hidden.repeat_interleave(shared, 0), -torch.inf), -1)
    expected = torch.einsum("qts,qsd->tqd", probabilities, values.repeat_interleave(shared, 0))
    torch.testing.assert_close(result, expected)
    assert summed is not None
    by_query_head = torch.einsum("t,qts->qs", weights, probabilities[:, -len(weights) :])
    torch.testing.assert_close(summed, by_query_head.view(heads, shared, slots).sum(1))


@given(
    queries=st.integers(1, 12), weighted=st.integers(1, 12), slots=st.integers(1, 40), seed=st.integers(0, 99)
)
@settings(max_examples=20, deadline=None)
def test_what_slots_are_given_is_the_same_compiled_or_not(
    queries: int, weighted: int, slots: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    probabilities = torch.rand(2, 3, queries, slots, generator=generator)
    weights = torch.rand(min(weighted, queries), generator=generator)
    before = torch.rand(2, slots + 5, generator=generator)
    expected = before.clone()
    expected[:, :slots] += torch.einsum("w,hqws->hs", weights, probabilities[:, :, -len(weights) :])
    for add in (add_given, by_torch):
        summed = before.clone()
        add(summed, probabilities, weights)
        torch.testing.assert_close(summed, expected)
