"""What every store must hold, whatever it is made of."""

import numpy as np
import pytest
import torch

from backends.kvcompress.contracts import PoolFull
from backends.kvcompress.spec import KvSpec
from tests.support.kv import spec
from tests.support.kv_stores import (
    DIM,
    HEADS,
    LAYERS,
    Make,
    ask,
    held,
    mask,
    name_of,
    opened,
    queries,
    ragged,
    rows_of,
    tokens,
)


def test_what_is_appended_is_read_back_as_it_was(make: Make) -> None:
    store = make()
    row = store.open(spec())
    first, second = tokens(37), tokens(1, first=37)
    first.append(store, 1, row)
    second.append(store, 1, row)
    for number, head in enumerate(held(store.read(1, row))):
        assert head.positions.tolist() == list(range(38))
        assert np.array_equal(head.keys, torch.cat([first.keys, second.keys])[:, number].numpy())
        assert np.array_equal(head.values, torch.cat([first.values, second.values])[:, number].numpy())
        assert not head.packed.any()
        assert not head.attention.any()
    assert store.counts(1, row) == [38] * HEADS
    assert store.counts(0, row) == [0] * HEADS
    assert store.read(0, row).positions.shape == (HEADS, 0)


def test_slots_are_read_without_their_vectors(make: Make) -> None:
    store = make()
    row = store.open(spec())
    ragged(store, row)
    whole, bare = store.read(0, row), store.read(0, row, vectors=False)
    assert bare.keys.shape == bare.values.shape == (HEADS, 0, DIM)
    for field in ("positions", "packed", "attention"):
        assert torch.equal(getattr(bare, field), getattr(whole, field))


@pytest.mark.parametrize("before", [0, 11], ids=["first chunk", "columns before"])
@pytest.mark.parametrize("tells", ["nothing", "given", "kept", "both"])
def test_of_a_chunk_what_is_kept_is_added_with_what_it_was_given(make: Make, tells: str, before: int) -> None:
    store = make()
    row = store.open(spec())
    first, chunk = tokens(before), tokens(21, first=before)
    first.append(store, 0, row)
    random = torch.Generator().manual_seed(5)
    given = torch.rand(HEADS, before + 21, generator=random) if tells in ("given", "both") else None
    kept = torch.rand(HEADS, before + 21, generator=random) < 0.5 if tells in ("kept", "both") else None
    store.add_chunk(0, row, chunk.positions, chunk.keys, chunk.values, given, kept)
    for number, head in enumerate(held(store.read(0, row))):
        stays = np.ones(before + 21, bool)
        if kept is not None:
            stays[before:] = kept[number, before:].numpy()  # what was held is not asked for
        sums = np.zeros(before + 21, np.float32)
        if given is not None:
            sums[before:] = given[number, before:].numpy()
        assert head.positions.tolist() == np.flatnonzero(stays).tolist()
        for side in ("keys", "values"):
            whole = torch.cat([getattr(first, side), getattr(chunk, side)])[:, number].numpy()
            assert np.array_equal(getattr(head, side), whole[stays])
        assert np.array_equal(head.attention, sums[stays])
        assert not head.packed.any()
    assert store.counts(1, row) == [0] * HEADS


def test_a_chunk_that_finds_no_room_changes_nothing(make: Make) -> None:
    store = make(make().page_bytes * 9)
    row = store.open(spec())
    tokens(5).append(store, 0, row)
    before, free = store.read(0, row), store.free_pages()
    many = tokens(300, first=5)
    with pytest.raises(PoolFull):
        store.add_chunk(0, row, many.positions, many.keys, many.values, torch.ones(HEADS, 300), None)
    after = store.read(0, row)
    assert store.free_pages() == free
    assert all(
        torch.equal(getattr(before, field), getattr(after, field))
        for field in ("keys", "values", "positions", "packed", "attention")
    )


def test_tokens_of_many_rows_are_appended_at_once(make: Make) -> None:
    """A chunk of one request's prompt, then one token each of those that decode."""
    store = make()
    rows = [store.open(spec()) for _ in range(3)]
    tokens(5).append(store, 0, rows[1])
    mixed = tokens(22, seed=4)
    numbers = torch.tensor([rows[0]] * 20 + [rows[1], rows[2]], dtype=torch.int32)
    positions = torch.tensor([*range(20), 5, 0])
    store.append(0, numbers, positions, mixed.keys, mixed.values)
    assert [store.counts(0, row) for row in rows] == [[20] * HEADS, [6] * HEADS, [1] * HEADS]
    last = held(store.read(0, rows[1]))[1]
    assert np.array_equal(last.keys[5], mixed.keys[20, 1].numpy())
    assert np.array_equal(held(store.read(0, rows[2]))[0].values[0], mixed.values[21, 0].numpy())


@pytest.mark.parametrize(
    "packing", [spec(), spec(quant="int4"), spec(quant="int3", granularity="kivi")], ids=name_of
)
def test_keep_drops_exactly_those(make: Make, packing: KvSpec) -> None:
    store = make()
    row = opened(store, packing)
    tokens(80).append(store, 0, row)
    tokens(80).append(store, 1, row)
    store.pack(0, row, 4, 60)
    ask(store, 0, [row], queries(1), decay=1.0)
    before = held(store.read(0, row))
    random = np.random.default_rng(5)
    for _ in range(3):
        alive = [head.positions for head in before]
        dropped = [set(random.choice(p, len(p) // 2, replace=False).tolist()) for p in alive]
        store.keep(0, row, mask(store, 0, row, dropped))
        after = held(store.read(0, row))
        for old, new, gone in zip(before, after, dropped, strict=True):
            stays = np.array([p not in gone for p in old.positions])
            for field in ("positions", "keys", "values", "packed", "attention"):
                assert np.array_equal(getattr(new, field), getattr(old, field)[stays])
        before = after
    assert store.counts(1, row) == [80] * HEADS
    tokens(30, first=80).append(store, 0, row)
    for old, new in zip(before, held(store.read(0, row)), strict=True):
        assert new.positions.tolist() == [*old.positions.tolist(), *range(80, 110)]


def test_pages_left_empty_are_free(make: Make) -> None:
    store = make()
    row = store.open(spec())
    tokens(600).append(store, 0, row)
    free, held_before = store.free_pages(), store.held_pages(row)
    assert free + held_before == store.pages
    store.keep(0, row, mask(store, 0, row, [set(range(590)), set()]))
    assert store.held_pages(row) < 0.6 * held_before
    assert store.free_pages() + store.held_pages(row) == store.pages
    store.keep(0, row, mask(store, 0, row, [set(range(600)), set(range(600))]))
    assert store.held_pages(row) == 0


def test_a_row_is_not_touched_by_its_neighbours(make: Make) -> None:
    store = make()
    row, other = store.open(spec(quant="int4")), store.open(spec(quant="int4"))
    tokens(60).append(store, 0, row)
    store.pack(0, row, 4, 52)
    before, answer = store.read(0, row), ask(store, 0, [row], queries(1), 1.0)
    for round_ in range(3):
        tokens(50, first=50 * round_).append(store, 0, other)
        store.pack(0, other, 4, 50 * round_)
        ask(store, 0, [other], queries(1), 1.0)
        store.keep(0, other, mask(store, 0, other, [set(range(0, 200, 2)), set(range(49))]))
    store.close(other)
    after = store.read(0, row)
    assert torch.equal(before.keys, after.keys)
    assert torch.equal(before.positions, after.positions)
    np.testing.assert_allclose(ask(store, 0, [row], queries(1)), answer, rtol=1e-6)
    fresh = store.open(spec())
    assert store.counts(0, fresh) == [0] * HEADS


def test_keys_move_to_other_positions(make: Make) -> None:
    store = make()
    row = store.open(spec())
    ragged(store, row)
    slots = store.read(0, row)
    elsewhere = torch.where(slots.positions < 0, -1, slots.positions + 100)
    store.move(0, row, 2 * slots.keys, elsewhere)
    after = store.read(0, row)
    assert torch.equal(after.positions, elsewhere)
    assert torch.equal(after.keys, 2 * slots.keys)
    assert torch.equal(after.values, slots.values)


@pytest.mark.parametrize(
    "packing", [spec(), spec(quant="int4"), spec(quant="int4", granularity="tensor")], ids=name_of
)
def test_a_closed_row_leaves_nothing(make: Make, packing: KvSpec) -> None:
    store = make()
    empty = store.used_bytes()
    for _ in range(3):
        row = opened(store, packing)
        for layer in range(LAYERS):
            tokens(300, seed=layer).append(store, layer, row)
            store.pack(layer, row, 4, 200)
        assert store.used_bytes() == store.held_bytes(row) > 0
        assert store.free_pages() + store.held_pages(row) == store.pages
        store.close(row)
        assert store.free_pages() == store.pages
        assert store.used_bytes() == empty == 0


def test_a_pool_that_is_full_says_so_and_stays_as_it_was(make: Make) -> None:
    store = make(make().page_bytes * 9)
    assert store.pages == 9
    row, other = store.open(spec()), store.open(spec())
    tokens(8).append(store, 0, row)
    tokens(8).append(store, 0, other)
    before = held(store.read(0, row))
    free = store.free_pages()
    assert 0 < free < 9
    many = tokens(2000, first=8)
    with pytest.raises(PoolFull):
        store.append(0, rows_of(row, 2000), many.positions, many.keys, many.values)
    assert store.free_pages() == free
    after = held(store.read(0, row))
    assert all(np.array_equal(a.keys, b.keys) for a, b in zip(before, after, strict=True))
    store.close(other)
    tokens(8, first=8).append(store, 0, row)
    store.close(row)
    assert store.free_pages() == 9
