"""What a store packs: how far values move, what is packed once and never again, what it takes in bytes."""

import numpy as np
import pytest
import scipy.linalg
import torch

from backends.kvcompress.contracts import KvStore
from backends.kvcompress.quant.bits import packed_bytes
from backends.kvcompress.quant.codebook import gaussian_levels
from backends.kvcompress.quant.rotation import signs
from backends.kvcompress.spec import GRANULARITIES, KvSpec
from tests.support.kv import spec
from tests.support.kv_stores import (
    DIM,
    HEADS,
    LAYERS,
    QUANTS,
    STORES,
    Make,
    held,
    mask,
    name_of,
    opened,
    tokens,
)

PACKINGS = [
    *(spec(quant=quant, granularity=granularity) for quant in QUANTS for granularity in GRANULARITIES),
    *(spec(quant=quant, codebook=True, rotate=True) for quant in ("int4", "int3", "int2")),
    spec(quant="int4", rotate=True),
    spec(quant="int8", rotate=True),
    spec(quant="int4", codebook=True),
    spec(quant="int2", granularity="kivi", group=32, rotate=True),
    spec(quant="int2", codebook=True, granularity="group", group=32),
]

packings = pytest.mark.parametrize("packing", PACKINGS, ids=name_of)


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
