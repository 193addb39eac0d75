"""Attention over what a store holds, against attention over a dense cache, whatever the store is made of."""

import numpy as np
import pytest
import torch

from backends.kvcompress.spec import KvSpec
from tests.support.kv import spec
from tests.support.kv_stores import (
    DIM,
    GROUP,
    HEADS,
    NO_DECAY,
    QUANTS,
    Make,
    ask,
    dense_attention,
    dense_weights,
    held,
    name_of,
    opened,
    queries,
    ragged,
    tokens,
)

# The compiled store makes a kernel for each layout that is attended to, which takes seconds. So: every format with a
# scale for each slot, and each way to share scales with a format that has zeros and with one that has none.
ATTENDED = [
    *(spec(quant=quant) for quant in QUANTS),
    *(spec(quant=quant, codebook=True, rotate=True) for quant in ("int4", "int3", "int2")),
    spec(quant="int4", rotate=True),
    *(spec(quant=quant, granularity="tensor") for quant in ("fp8", "int4")),
    *(spec(quant=quant, granularity="group") for quant in ("int8", "int4")),
    *(spec(quant=quant, granularity="channel") for quant in ("int8", "int2")),
    *(spec(quant=quant, granularity="kivi") for quant in ("fp8", "int3", "int2")),
    spec(quant="int2", codebook=True, granularity="group", group=32),
]


def test_attention_is_that_of_a_dense_cache(make: Make) -> None:
    store = make()
    lengths = (1, 7, 8, 9, 64, 200)
    rows = [store.open(spec()) for _ in lengths]
    for row, length in zip(rows, lengths, strict=True):
        tokens(length, seed=row).append(store, 1, row)
    asked = queries(len(rows))
    given = ask(store, 1, rows, asked)
    for row, query, result in zip(rows, asked, given, strict=True):
        np.testing.assert_allclose(
            result, dense_attention(held(store.read(1, row)), query), rtol=1e-4, atol=1e-5
        )


def test_heads_that_hold_different_numbers_attend_to_their_own(make: Make) -> None:
    store = make()
    row, other = store.open(spec()), store.open(spec())
    ragged(store, row)
    tokens(3, seed=1).append(store, 0, other)
    asked = queries(2)
    given = ask(store, 0, [row, other], asked)
    assert store.counts(0, row) == [26, 5]
    for number, query, result in zip((row, other), asked, given, strict=True):
        np.testing.assert_allclose(
            result, dense_attention(held(store.read(0, number)), query), rtol=1e-4, atol=1e-5
        )


@pytest.mark.parametrize("packing", ATTENDED, ids=name_of)
def test_packed_slots_are_attended_to_as_they_are_read(make: Make, packing: KvSpec) -> None:
    store = make()
    row = opened(store, packing)
    tokens(48 + 4 + 8).append(store, 0, row)
    store.pack(0, row, 4, 52)
    after = held(store.read(0, row))
    assert all(head.packed.any() for head in after)
    expected = dense_attention(after, queries(1)[0])
    np.testing.assert_allclose(ask(store, 0, [row], queries(1))[0], expected, rtol=1e-4, atol=1e-5)
    assert np.abs(expected).max() > 0.1


@pytest.mark.parametrize(
    "packing", [spec(), spec(quant="int4"), spec(quant="int2", granularity="kivi")], ids=name_of
)
@pytest.mark.parametrize("decay", [0.0, 0.9, 1.0])
def test_attention_is_summed_as_it_was_given(make: Make, packing: KvSpec, decay: float) -> None:
    store = make()
    row = opened(store, packing)
    tokens(50).append(store, 0, row)
    store.pack(0, row, 4, 42)
    expected = np.zeros((HEADS, 50))
    for step in range(4):
        asked = queries(1, seed=step)
        by_head = asked[0].numpy().reshape(HEADS, GROUP, DIM)
        for number, head in enumerate(held(store.read(0, row))):
            expected[number] = decay * expected[number] + dense_weights(head.keys, by_head[number]).sum(
                axis=0
            )
        ask(store, 0, [row], asked, decay)
        ask(store, 0, [row], queries(1, seed=50), NO_DECAY)  # changes nothing
    assert np.stack([h.attention for h in held(store.read(0, row))]) == pytest.approx(
        expected, rel=1e-4, abs=1e-6
    )
    tokens(1, first=50).append(store, 0, row)
    assert [head.attention[50] for head in held(store.read(0, row))] == [0, 0]


def test_rows_of_a_batch_decay_each_at_its_own(make: Make) -> None:
    store = make()
    rows = [store.open(spec()) for _ in range(3)]
    for row in rows:
        tokens(20).append(store, 0, row)
    for _ in range(2):
        store.attend(0, torch.tensor(rows, dtype=torch.int32), queries(3), torch.tensor([1.0, 0.0, NO_DECAY]))
    sums = [head.attention.sum() for row in rows for head in held(store.read(0, row))]
    assert sums == pytest.approx([2 * GROUP] * HEADS + [GROUP] * HEADS + [0] * HEADS, rel=1e-4)


def test_attention_of_other_queries_is_added(make: Make) -> None:
    store = make()
    row = store.open(spec())
    ragged(store, row)
    slots = store.read(0, row)
    given = torch.rand(slots.positions.shape) * (slots.positions >= 0)
    store.add_attention(0, row, 1.0, given)
    store.add_attention(0, row, 0.5, given)
    torch.testing.assert_close(store.read(0, row).attention, 1.5 * given)


def test_batching_changes_nothing(make: Make) -> None:
    store = make()
    wanted = [spec(), spec(quant="int4"), spec(quant="int8"), spec()]
    rows = [store.open(each) for each in wanted]
    for number, row in enumerate(rows):
        tokens(30 * number + 1, seed=number).append(store, 0, row)
        store.pack(0, row, 4, 30 * number - 7)
    asked = queries(len(rows))
    together = ask(store, 0, rows, asked)
    for number, row in enumerate(rows):
        alone = ask(store, 0, [row], asked[number : number + 1])
        np.testing.assert_allclose(together[number], alone[0], rtol=1e-5, atol=1e-6)
