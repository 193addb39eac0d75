"""What every store must hold, whatever it is made of."""

from collections.abc import Callable

import numpy as np
import pytest
import scipy.linalg
import torch

from backends.kvcompress.contracts import KvStore, PoolFull
from backends.kvcompress.quant.bits import packed_bytes
from backends.kvcompress.quant.codebook import gaussian_levels
from backends.kvcompress.quant.rotation import signs
from backends.kvcompress.spec import GRANULARITIES, KvSpec
from tests.support.kv import spec
from tests.support.kv_stores import (
    DIM,
    GROUP,
    HEADS,
    LAYERS,
    STORES,
    dense_attention,
    dense_weights,
    held,
    opened,
    queries,
    rows_of,
    tokens,
)

Make = Callable[..., KvStore]
QUANTS = ["int8", "fp8", "int4", "int3", "int2"]
PACKINGS = [
    *(spec(quant=quant, granularity=granularity) for quant in QUANTS for granularity in GRANULARITIES),
    *(spec(quant=quant, codebook=True, rotate=True) for quant in ("int4", "int3", "int2")),
    spec(quant="int4", rotate=True),
    spec(quant="int8", rotate=True),
    spec(quant="int4", codebook=True),
    spec(quant="int2", granularity="kivi", group=32, rotate=True),
    spec(quant="int2", codebook=True, granularity="group", group=32),
]
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
NO_DECAY = float("nan")


def name_of(packing: KvSpec) -> str:
    words = [packing.quant, packing.granularity, str(packing.group)]
    return "-".join(words + [w for w in ("codebook", "rotate") if getattr(packing, w)])


packings = pytest.mark.parametrize("packing", PACKINGS, ids=name_of)


@pytest.fixture(params=sorted(STORES))
def make(request: pytest.FixtureRequest) -> Make:
    return STORES[request.param]


def ask(
    store: KvStore, layer: int, rows: list[int], asked: torch.Tensor, decay: float = NO_DECAY
) -> np.ndarray:
    decays = torch.full((len(rows),), decay)
    return store.attend(layer, torch.tensor(rows, dtype=torch.int32), asked, decays).numpy()


def mask(store: KvStore, layer: int, row: int, dropped: list[set[int]]) -> torch.Tensor:
    """What `keep` is given to drop these positions of each head."""
    positions = store.read(layer, row, vectors=False).positions
    return torch.tensor(
        [[int(p) not in gone for p in head] for head, gone in zip(positions, dropped, strict=True)]
    )


def ragged(store: KvStore, row: int, layer: int = 0) -> None:
    """40 tokens, of which the first head loses every third and the second all but 5."""
    tokens(40).append(store, layer, row)
    store.keep(layer, row, mask(store, layer, row, [set(range(0, 40, 3)), set(range(35))]))


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


def largest_error(packing: KvSpec, kind: str, vectors: np.ndarray) -> np.ndarray:
    """Most that packing may move each of these values: of one head's whole groups, or of all heads [H, n, D]."""
    granularity = packing.granularity
    if granularity == "kivi":
        granularity = "channel" if kind == "keys" else "token_head"
    heads, count, dim = vectors.shape
    grouped, axes = vectors, {"tensor": (0, 1, 2), "token": (0, 2), "token_head": (2,)}.get(granularity, ())
    if granularity == "group":
        grouped, axes = vectors.reshape(heads, count, -1, packing.group), (3,)
    elif granularity == "channel":
        grouped, axes = vectors.reshape(heads, -1, packing.group, dim), (2,)
    low, high = grouped.min(axis=axes, keepdims=True), grouped.max(axis=axes, keepdims=True)
    peak = np.maximum(np.abs(low), np.abs(high))
    rounding = 2.0**-7  # what bfloat16 may add to a scale or an offset, relative
    if packing.codebook:
        scale = np.sqrt((grouped.astype(np.float64) ** 2).mean(axis=axes, keepdims=True))
        levels = np.array(gaussian_levels(int(packing.quant[3:])))
        off = np.abs(grouped[..., None] - scale[..., None] * levels).min(axis=-1) + scale * 3 * rounding
    elif packing.quant == "fp8":
        off = np.maximum(np.abs(grouped) * 2.0**-4, peak / 448 * 2.0**-10) * (1 + rounding)
    elif packing.quant == "int8":
        off = peak / 127 / 2 * (1 + rounding)
    else:
        off = (high - low + np.abs(low) * rounding) / (2 ** int(packing.quant[3:]) - 1) / 2 * (1 + rounding)
    return np.broadcast_to(off, grouped.shape).reshape(vectors.shape) + 1e-5 * np.abs(vectors).max()


def turned(vectors: np.ndarray) -> np.ndarray:
    """Rotated as `kv.rotate` does."""
    return (vectors * signs(DIM).numpy()) @ scipy.linalg.hadamard(DIM) / np.sqrt(DIM)


@packings
def test_packing_moves_values_by_half_a_step_of_their_own_scale_at_most(make: Make, packing: KvSpec) -> None:
    store = make()
    row = opened(store, packing)
    given = tokens(48 + 4 + 8)
    given.append(store, 0, row)
    store.add_attention(0, row, 1.0, torch.rand(HEADS, len(given.positions)))
    attention = [head.attention for head in held(store.read(0, row))]
    assert all((of_head > 0).any() for of_head in attention)
    first, end = 4, 52  # between the sinks and the recent ones; 48 are whole groups of 16, not of 32
    store.pack(0, row, first, end)
    last = first + 48 // packing.group * packing.group if packing.granularity in ("channel", "kivi") else end
    after = held(store.read(0, row))
    for head in after:
        assert head.packed.nonzero()[0].tolist() == list(range(first, last))
    for kind, original in (("keys", given.keys), ("values", given.values)):
        wanted = original.numpy().transpose(1, 0, 2)
        read = np.stack([getattr(head, kind) for head in after])
        exact = [*range(first), *range(last, len(original))]
        assert np.array_equal(read[:, exact], wanted[:, exact])
        wanted, read = wanted[:, first:last], read[:, first:last]
        if packing.rotate:
            wanted, read = turned(wanted), turned(read)
        assert (np.abs(read - wanted) <= largest_error(packing, kind, wanted)).all()
    for head, was in zip(after, attention, strict=True):
        assert np.array_equal(head.attention, was)


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


@packings
def test_nothing_is_quantised_twice(make: Make, packing: KvSpec) -> None:
    store = make()
    row = opened(store, packing)
    tokens(100).append(store, 1, row)
    store.pack(1, row, 4, 60)
    once = held(store.read(1, row))
    store.keep(1, row, mask(store, 1, row, [set(range(10, 20)), {5, 30, 59}]))
    tokens(30, first=100).append(store, 1, row)
    store.pack(1, row, 4, 60)
    store.pack(1, row, 0, 122)
    for before, after in zip(once, held(store.read(1, row)), strict=True):
        stays = np.isin(before.positions, after.positions) & before.packed
        same = np.isin(after.positions, before.positions[stays])
        assert np.array_equal(after.keys[same], before.keys[stays])
        assert np.array_equal(after.values[same], before.values[stays])
        assert after.packed[same].all()
        assert not after.packed[-8:].any()


def test_where_nothing_is_quantised_nothing_is_packed(make: Make) -> None:
    store = make()
    row = store.open(spec())
    tokens(40).append(store, 0, row)
    before = store.read(0, row)
    store.pack(0, row, 0, 40)
    assert torch.equal(store.read(0, row).keys, before.keys)
    assert not store.read(0, row).packed.any()


@packings
def test_both_kinds_of_store_read_back_the_same(packing: KvSpec) -> None:
    read = []
    for kind in ("torch", "paged"):
        store = STORES[kind]()
        row = opened(store, packing)
        tokens(300).append(store, 0, row)
        store.keep(0, row, mask(store, 0, row, [set(range(50, 90)), set(range(7, 250, 2))]))
        store.pack(0, row, 4, 150)
        store.pack(0, row, 4, 290)
        read.append(held(store.read(0, row)))
    for ours, theirs in zip(*read, strict=True):
        assert np.array_equal(ours.positions, theirs.positions)
        assert np.array_equal(ours.packed, theirs.packed)
        for field in ("keys", "values"):
            off = np.abs(getattr(ours, field) - getattr(theirs, field)).max(axis=1)
            # A value on the edge of two codes may fall to either side, and a scale of bfloat16 as well.
            assert (off < 1e-5).mean() > 0.99
            assert off.max() < 3


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


def slot_bytes(held_bytes: int, count: int, store: KvStore) -> tuple[float, float]:
    """Bytes of a slot: at least, at most; a last page that is partly empty in each head and layer aside."""
    heads = HEADS * LAYERS
    return (held_bytes - heads * store.page_bytes) / (count * heads), held_bytes / (count * heads)


def test_exact_slots_take_what_geometry_says(make: Make) -> None:
    """Keys and values in float32; beside them positions, attention sums and tables, at most 12 bytes a slot, and what
    is left over at the end of each page (less than a tenth of it)."""
    store = make()
    row, count = store.open(spec()), 1600
    for layer in range(LAYERS):
        tokens(count).append(store, layer, row)
    geometry = 2 * DIM * 4
    least, most = slot_bytes(store.held_bytes(row), count, store)
    assert most >= geometry + 4
    assert least <= (geometry + 12) * 1.1
    pages = store.pages_for(spec(), count, 0)
    assert store.held_pages(row) == pages * HEADS * LAYERS


@packings
def test_packed_slots_take_what_codes_and_scales_take(packing: KvSpec) -> None:
    """Where packing is real; beside them, positions, attention, tables and the ends of pages as for exact slots."""
    store = STORES["paged"]()
    assert store.packed
    row, count = opened(store, packing), 1600
    for layer in range(LAYERS):
        tokens(count).append(store, layer, row)
        store.pack(layer, row, 0, count)
        assert store.read(layer, row, vectors=False).packed.all()
    wanted = packed_bytes(packing, count, HEADS, DIM) / (count * HEADS)
    least, most = slot_bytes(store.held_bytes(row), count, store)
    assert most >= wanted
    assert (
        least <= (wanted + 12) * 1.25
    )  # few values a head: a page ends further from a whole number of slots
    assert store.held_pages(row) <= store.pages_for(packing, 0, count) * HEADS * LAYERS


@packings
def test_no_more_pages_are_taken_than_was_said(make: Make, packing: KvSpec) -> None:
    store = make()
    row = opened(store, packing)
    for count in range(7, 200, 23):
        tokens(23, first=count - 7).append(store, 0, row)
        store.pack(0, row, 4, count)
        packed = int(store.read(0, row, vectors=False).packed.sum(dim=1).max())
        exact = max(store.counts(0, row)) - packed
        assert store.held_pages(row) <= HEADS * store.pages_for(packing, exact, packed)


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
