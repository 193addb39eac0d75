"""How much a request may hold, and that it holds no more at any step."""

from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.kvcompress.budgets import PACKED_TOGETHER, Allowance, Shape, slots_within
from backends.kvcompress.policies import POLICIES
from backends.kvcompress.spec import Budget
from harness.core.errors import UsageError
from tests.support.kv import spec
from tests.support.kv_play import attention_over, play, run_pass, stream
from tests.support.kv_store import ListStore

EVICTING = sorted(POLICIES.keys() - {"none"})
LAYERS, HEADS = 3, 2
RETRIEVING = torch.tensor([[False, True], [False, False], [False, False]])


def allowance(prompt: int, layers: int = LAYERS, **changes: Any) -> Allowance:
    return Allowance(spec(evict="knorm", **changes), prompt, Shape(layers, HEADS), None, None)


def test_retrieval_heads_keep_everything_while_the_others_are_left_a_quarter_of_an_even_share() -> None:
    half = Allowance(
        spec(evict="knorm", budget={"fraction": 0.5}, spread="retrieval"),
        120,
        Shape(LAYERS, HEADS),
        None,
        RETRIEVING,
    )
    assert [half.of_heads(layer, 120) for layer in range(LAYERS)] == [[48, 120], [48, 48], [48, 48]]
    tight = Allowance(
        spec(evict="knorm", budget={"tokens": 16}, spread="retrieval"),
        120,
        Shape(LAYERS, HEADS),
        None,
        RETRIEVING,
    )
    assert [tight.of_heads(layer, 120) for layer in range(LAYERS)] == [[4, 76], [4, 4], [4, 4]]


def test_a_retrieval_head_loses_nothing_while_others_are_evicted_step_by_step() -> None:
    tokens = stream(200, LAYERS)
    store = ListStore(LAYERS, HEADS, 8)
    attention = attention_over(store, LAYERS, HEADS, RETRIEVING)
    row = attention.open(spec(evict="auto", budget={"fraction": 0.5}, spread="retrieval"), 100)
    play(attention, row, tokens, 100, 32)
    assert sorted(store.read(0, row).positions[1].tolist()) == list(range(200))
    assert max(store.counts(1, row)) <= 80


def test_who_has_not_measured_retrieval_heads_is_told() -> None:
    with pytest.raises(UsageError, match="retrieval heads"):
        attention_over(ListStore(2, 2, 8)).open(
            spec(evict="knorm", budget={"tokens": 9}, spread="retrieval"), 9
        )


def test_a_fraction_is_of_the_prompt_until_more_was_seen() -> None:
    half = allowance(100, budget={"fraction": 0.5})
    assert [half.slots(0, seen) for seen in (1, 60, 100, 101, 102, 300)] == [50, 50, 50, 50, 51, 150]
    assert allowance(3, budget={"fraction": 0.01}).slots(0, 3) == 1


@given(
    layers=st.integers(1, 40),
    prompt=st.integers(1, 5000),
    fraction=st.floats(0.01, 1),
    seen=st.integers(1, 9000),
)
@settings(deadline=None)
def test_a_pyramid_gives_early_layers_more_and_all_of_them_no_more_than_even(
    layers: int, prompt: int, fraction: float, seen: int
) -> None:
    slots = [
        allowance(prompt, layers, budget={"fraction": fraction}, spread="pyramid").slots(layer, seen)
        for layer in range(layers)
    ]
    tokens = max(prompt, seen)
    assert slots == sorted(slots, reverse=True) and slots[0] <= tokens
    even = max(1.0, fraction * tokens)
    assert even * layers - layers <= sum(slots) <= even * layers + 1e-6 * tokens


def test_the_last_layer_of_a_pyramid_holds_one_slot_however_it_is_rounded() -> None:
    for layers in range(1, 81):
        for tokens in range(1, 200):
            least = allowance(tokens, layers, budget={"fraction": 0.05}, spread="pyramid").slots(
                layers - 1, 1
            )
            assert least >= 1, (layers, tokens)


@given(
    evict=st.sampled_from(EVICTING),
    spread=st.sampled_from(["uniform", "pyramid", "adakv", "retrieval"]),
    budget=st.one_of(
        st.builds(lambda tokens: {"tokens": tokens}, st.integers(1, 50)),
        st.builds(lambda fraction: {"fraction": fraction}, st.floats(0.05, 1)),
        st.builds(lambda size: {"bytes": size}, st.integers(24_000, 120_000)),
    ),
    sinks=st.integers(0, 6),
    recent=st.integers(1, 20),
    quant=st.sampled_from(["none", "int4"]),
    when=st.sampled_from(["chunk", "prompt"]),
    prompt=st.integers(1, 45),
    chunk=st.integers(1, 45),
)
@settings(max_examples=40, deadline=None)
def test_a_budget_is_never_exceeded_and_slots_stay_what_they_were(
    evict: str,
    spread: str,
    budget: dict[str, Any],
    sinks: int,
    recent: int,
    quant: str,
    when: str,
    prompt: int,
    chunk: int,
) -> None:
    tokens = stream(50, LAYERS)
    store = ListStore(LAYERS, HEADS, 8)
    attention = attention_over(store, LAYERS, HEADS, RETRIEVING)
    row = attention.open(
        spec(evict=evict, budget=budget, spread=spread, sinks=sinks, recent=recent, quant=quant, when=when),
        prompt,
    )

    def check(seen: int) -> None:
        if when == "prompt" and seen < prompt:
            return
        counts = torch.tensor([store.counts(layer, row) for layer in range(LAYERS)])
        if "bytes" in budget:
            assert store.held_bytes(row) <= budget["bytes"]
        else:
            per_head = (
                budget["tokens"] if "tokens" in budget else max(1, budget["fraction"] * max(prompt, seen))
            )
            assert counts.sum() <= per_head * LAYERS * HEADS
            if spread == "adakv":
                assert counts.sum(1).max() <= per_head * HEADS
            if spread == "uniform":
                assert counts.max() <= per_head
        for layer in range(LAYERS):
            slots = store.read(layer, row)
            held = slots.positions >= 0
            for head in range(HEADS):
                at = slots.positions[head, held[head]]
                assert torch.equal(slots.keys[head, held[head]], tokens.keys[layer, at, head])
                assert torch.equal(slots.values[head, held[head]], tokens.values[layer, at, head])
            if quant != "none":
                old = held & (slots.positions >= sinks) & (slots.positions < seen - recent - PACKED_TOGETHER)
                assert slots.packed[old].all()
                assert not slots.packed[
                    held & ((slots.positions < sinks) | (slots.positions >= seen - recent))
                ].any()

    play(attention, row, tokens, prompt, chunk, check)


@pytest.mark.parametrize("evict", EVICTING)
def test_slots_pages_and_bytes_fall_as_stated(evict: str) -> None:
    tokens = stream(64)
    held = {}
    for fraction in (1.0, 0.5, 0.25):
        store = ListStore(2, 2, 8)
        attention = attention_over(store)
        row = attention.open(spec(evict=evict, budget={"fraction": fraction}, recent=4), 64)
        run_pass(attention, (row, tokens, 0, 64, True))
        assert store.counts(1, row) == [64 * fraction] * 2
        held[fraction] = store.held_pages(row)
    assert held == {1.0: 32, 0.5: 16, 0.25: 8}


@pytest.mark.parametrize("evict", ["snapkv", "h2o", "knorm", "expected_attention"])
def test_adakv_gives_heads_different_lengths_whose_sum_is_the_layers_budget(evict: str) -> None:
    tokens = stream(200)
    tokens.keys[:, :, 1] *= 0.1  # the second head attends evenly, and its keys are small
    store = ListStore(2, 2, 8)
    attention = attention_over(store)
    row = attention.open(spec(evict=evict, budget={"tokens": 80}, spread="adakv"), 150)
    lengths = []
    play(attention, row, tokens, 150, 75, lambda seen: lengths.append(store.counts(0, row)))
    assert sum(lengths[1]) == 160 and lengths[1][0] != lengths[1][1]
    assert all(sum(each) <= 160 and min(each) >= 14 for each in lengths)


@given(
    size=st.integers(2_000, 200_000),
    quant=st.sampled_from(["none", "int4"]),
    spread=st.sampled_from(["uniform", "adakv"]),
)
@settings(deadline=None)
def test_bytes_become_as_many_slots_as_fit(size: int, quant: str, spread: str) -> None:
    store, shape = ListStore(2, 2, 8), Shape(2, 2)
    wanted = spec(evict="knorm", budget={"bytes": size}, quant=quant, spread=spread)
    try:
        slots = slots_within(size, wanted, store, shape, 64)
    except UsageError:
        assert size < 12 * 600 + 64
        return
    slack = {"uniform": 0, "adakv": 1 if quant == "none" else 2}[spread]

    def bytes_of(count: int) -> int:
        packed = (
            [0]
            if quant == "none"
            else range(max(0, count - 4 - 8 - PACKED_TOGETHER), max(0, count - 4 - 8) + 1)
        )
        pages = max(store.pages_for(wanted, count - of, of) for of in packed) + slack
        return 64 + 4 * pages * (store.page_bytes + 8)

    assert bytes_of(slots) <= size < bytes_of(slots + 1)


def test_another_budget_holds_from_the_next_token_on() -> None:
    tokens = stream(60)
    attention = attention_over(store := ListStore(2, 2, 8))
    row = attention.open(spec(evict="knorm", budget={"tokens": 40}), 50)
    run_pass(attention, (row, tokens, 0, 50, True))
    assert store.counts(0, row) == [40, 40]
    attention.rebudget(row, Budget(None, 20, None))
    run_pass(attention, None, [(row, tokens, 50)])
    assert max(store.counts(0, row)) <= 20
    attention.rebudget(row, Budget(None, 30, None))
    for token in range(51, 60):
        run_pass(attention, None, [(row, tokens, token)])
    assert store.counts(0, row)[0] > 20


def test_most_decode_steps_evict_nothing() -> None:
    """A row's slots are read for eviction once in many steps, not at each."""
    tokens = stream(400, layers=1)
    store = ListStore(1, 2, 8)
    attention = attention_over(store, layers=1)
    row = attention.open(spec(evict="knorm", budget={"tokens": 160}), 200)
    counts = []
    play(attention, row, tokens, 200, 200, lambda seen: counts.append(store.counts(0, row)[0]))
    falls = sum(after < before for before, after in pairwise(counts))
    assert 0 < falls <= 200 // 10 + 1 and max(counts) == 160


@pytest.mark.parametrize("granularity", ["channel", "kivi"])
def test_bytes_are_refused_where_evicted_slots_leave_holes(granularity: str) -> None:
    wanted = spec(evict="knorm", budget={"bytes": 90_000}, quant="int4", granularity=granularity)
    with pytest.raises(UsageError, match="token_head"):
        slots_within(90_000, wanted, ListStore(2, 2, 8), Shape(2, 2), 64)
