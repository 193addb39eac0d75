"""What the compiled store promises beyond what every store does: pages, bytes, layouts, kernels against numpy."""

import numba
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.kvcompress.contracts import PoolFull
from backends.kvcompress.quant.slots import dequantise, quantise
from backends.kvcompress.spec import KvSpec
from backends.kvcompress.store import PagedStore
from tests.support.kv import spec

HEADS, GROUP = 2, 3
NONE = torch.tensor([float("nan")])


def paged(
    dim: int = 64, exact: str = "f32", pages: int = 200, context: int = 1000, group: int = GROUP
) -> PagedStore:
    one = PagedStore(2, HEADS, group, dim, exact, 1 << 20, 3, context, 1, lambda _: True).page_bytes
    return PagedStore(2, HEADS, group, dim, exact, pages * one, 3, context, 1, lambda _: True)


def fill(store: PagedStore, row: int, count: int, dim: int = 64) -> tuple[torch.Tensor, torch.Tensor]:
    """Gaussian keys and values [count, HEADS, dim] in layer 1."""
    keys, values = torch.randn(2, count, HEADS, dim, generator=torch.Generator().manual_seed(count))
    store.append(1, torch.full((count,), row, dtype=torch.int32), torch.arange(count), keys, values)
    return keys, values


def dense(store: PagedStore, row: int, queries: torch.Tensor) -> np.ndarray:
    """Attention in double precision over what `read` gives; one query [Q, D]."""
    slots = store.read(1, row)
    out = []
    for head, asked in enumerate(queries.double().view(HEADS, -1, queries.shape[-1])):
        there = slots.positions[head] >= 0
        keys, values = slots.keys[head][there].double(), slots.values[head][there].double()
        out.append(torch.softmax(asked @ keys.T / queries.shape[-1] ** 0.5, dim=-1) @ values)
    return torch.cat(out).numpy()


@pytest.mark.parametrize(
    ("packing", "exact", "dim", "group"),
    [
        (spec(quant="int8"), "bf16", 64, 3),
        (spec(quant="int4"), "f32", 64, 3),
        (spec(quant="int3", codebook=True, rotate=True), "f32", 64, 1),
        (spec(quant="int8", value_quant="int4", codebook=True, rotate=True), "bf16", 64, 3),
        # Neither a power of two nor whole registers: padded, the values to another width.
        (spec(quant="int3", value_quant="int4"), "f32", 80, 5),
    ],
)
def test_packed_slots_are_those_of_the_reference_and_attended_as_read(
    packing: KvSpec, exact: str, dim: int, group: int
) -> None:
    store = paged(dim, exact, group=group)
    row = store.open(packing)
    keys, values = fill(store, row, 77, dim)
    store.pack(1, row, 4, 60)
    slots = store.read(1, row)
    for kind, computed, held in (("keys", keys, slots.keys), ("values", values, slots.values)):
        rounded = computed.to(torch.bfloat16).float() if exact == "bf16" else computed
        for head in range(HEADS):
            wanted = rounded[:, head].clone()
            within = torch.arange(4, 60)
            wanted[4:60] = dequantise(quantise(packing, kind, wanted[4:60], within, torch.zeros_like(within)))
            np.testing.assert_allclose(held[head], wanted[slots.positions[head]], rtol=1e-5, atol=1e-6)
    asked = torch.randn(1, HEADS * group, dim)
    result = store.attend(1, torch.tensor([row], dtype=torch.int32), asked, NONE)
    np.testing.assert_allclose(result[0], dense(store, row, asked[0]), rtol=1e-4, atol=1e-5)


def test_rows_packed_in_different_ways_decode_in_one_batch() -> None:
    store = paged()
    rows = [store.open(each) for each in (spec(), spec(quant="int8"), spec())]
    for row, count in zip(rows, (9, 33, 70), strict=True):
        fill(store, row, count)
        store.pack(1, row, 0, 20)
    asked = torch.randn(3, HEADS * GROUP, 64)
    result = store.attend(1, torch.tensor(rows, dtype=torch.int32), asked, NONE.expand(3).contiguous())
    for row, query, answer in zip(rows, asked, result, strict=True):
        np.testing.assert_allclose(answer, dense(store, row, query), rtol=1e-4, atol=1e-5)


def test_scores_that_would_overflow_are_weighed_all_the_same() -> None:
    store = paged()
    row = store.open(spec())
    fill(store, row, 20)
    asked = 1e4 * torch.randn(1, HEADS * GROUP, 64)
    result = store.attend(1, torch.tensor([row], dtype=torch.int32), asked, NONE)
    np.testing.assert_allclose(result[0], dense(store, row, asked[0]), rtol=1e-3, atol=1e-4)


def test_what_was_dropped_takes_no_page_and_its_memory_disturbs_nobody() -> None:
    """Pages are used again as they were left: with bytes that read as any number, NaN among them."""
    store = paged(pages=60)
    first = store.open(spec())
    rows = torch.full((100,), first, dtype=torch.int32)
    nan = torch.full((100, HEADS, 64), float("nan"))
    store.append(1, rows, torch.arange(100), nan, nan)
    store.close(first)
    assert store.free_pages() == store.pages
    row = store.open(spec(quant="int4"))
    fill(store, row, 43)
    store.pack(1, row, 0, 37)
    asked = torch.randn(1, HEADS * GROUP, 64)
    result = store.attend(1, torch.tensor([row], dtype=torch.int32), asked, NONE)
    np.testing.assert_allclose(result[0], dense(store, row, asked[0]), rtol=1e-4, atol=1e-5)


def test_a_full_pool_leaves_an_append_undone_and_a_pack_where_it_came_to() -> None:
    store = paged(pages=2 * HEADS)
    row = store.open(spec(quant="int8"))
    fill(store, row, 16)
    with pytest.raises(PoolFull):
        fill(store, row, 1)
    before = store.read(1, row)
    with pytest.raises(PoolFull):
        store.pack(1, row, 0, 16)
    after = store.read(1, row)
    for slots in (before, after):
        assert all(sorted(head.tolist()) == list(range(16)) for head in slots.positions)
    store.keep(1, row, torch.ones(HEADS, 16, dtype=torch.bool) & (after.positions < 8))
    store.pack(1, row, 0, 16)
    assert store.read(1, row).packed.all()
    store.close(row)
    assert store.free_pages() == store.pages


def test_positions_beyond_16_bits_are_held_where_the_context_is_longer() -> None:
    store = paged(context=70_000)
    row = store.open(spec())
    ones = torch.ones(1, HEADS, 64)
    store.append(1, torch.tensor([row], dtype=torch.int32), torch.tensor([69_999]), ones, ones)
    assert store.read(1, row).positions.tolist() == [[69_999]] * HEADS


@pytest.mark.parametrize(
    ("packing", "slot"),
    [
        (spec(quant="int8"), 134),
        (spec(quant="int4"), 74),
        (spec(quant="int8", value_quant="int4", codebook=True, rotate=True), 102),
    ],
)
def test_bytes_are_those_of_slots_and_slack(packing: KvSpec, slot: int) -> None:
    """slot: codes, scales (and zeros) and the position."""
    store = PagedStore(2, HEADS, GROUP, 64, "f32", 1 << 22, 3, 5000, 1, lambda _: False)
    row = store.open(packing)
    empty = store.held_bytes(row)
    fill(store, row, 2048)
    store.pack(1, row, 0, 2048)
    taken = (store.held_bytes(row) - empty) / (2048 * HEADS)
    in_a_page = store.page_bytes // (8 * slot) * 8  # slots come in eights
    assert (
        taken == -(-2048 // in_a_page) * (store.page_bytes + 8) / 2048
    )  # 8: a link and a place on the free list
    assert slot <= taken < 1.13 * slot
    assert store.used_bytes() == store.held_bytes(row)


def test_more_threads_give_the_same() -> None:
    before = numba.get_num_threads()
    results = []
    try:
        numba.set_num_threads(2)
        for threads in (1, 2):
            store = PagedStore(2, HEADS, GROUP, 64, "f32", 1 << 22, 3, 1000, threads, lambda _: True)
            rows = [store.open(spec()) for _ in range(3)]
            for row, count in zip(rows, (7, 80, 200), strict=True):
                fill(store, row, count)
            asked = torch.randn(3, HEADS * GROUP, 64, generator=torch.Generator().manual_seed(5))
            decay = torch.ones(3)
            results.append(store.attend(1, torch.tensor(rows, dtype=torch.int32), asked, decay))
            results.append(torch.stack([store.read(1, row).attention[:, :7] for row in rows]))
    finally:
        numba.set_num_threads(before)
    assert torch.equal(results[0], results[2])
    assert torch.equal(results[1], results[3])


SHARED = [
    spec(quant=quant, granularity=by, group=16) for quant in ("int4", "int2") for by in ("kivi", "channel")
]


@settings(deadline=None, max_examples=40)
@given(
    packing=st.sampled_from([spec(quant="int8"), spec(quant="int3", granularity="group"), *SHARED]),
    pieces=st.lists(st.integers(1, 70), min_size=1, max_size=5),
    waiting=st.integers(0, 20),
)
def test_no_head_takes_more_pages_than_were_reckoned_with(
    packing: KvSpec, pieces: list[int], waiting: int
) -> None:
    """Whatever the pieces in which tokens come and are packed."""
    store = paged()
    row = store.open(packing)
    seen = 0
    for piece in pieces:
        keys = torch.randn(piece, HEADS, 64)
        rows = torch.full((piece,), row, dtype=torch.int32)
        store.append(1, rows, torch.arange(seen, seen + piece), keys, keys)
        seen += piece
        store.pack(1, row, 0, seen - waiting)
        packed = int(store.read(1, row, vectors=False).packed[0].sum())
        assert store.held_pages(row) <= HEADS * store.pages_for(packing, seen - packed, packed)
        assert store.held_pages(row) + store.free_pages() == store.pages
