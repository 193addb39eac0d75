"""Two layers that keep one copy: the merge against its geometry, and the torch store that shares by it."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from backends.kvcompress.quant.minicache import TOWARDS_UPPER, lower_of, merge
from backends.kvcompress.spec import KvSpec
from backends.kvcompress.store_torch import TorchStore
from harness.core.errors import UsageError
from tests.support.kv import spec
from tests.support.kv_play import Stream, attention_over, play, stream
from tests.support.kv_stores import (
    DIM,
    GROUP,
    HEADS,
    dense_attention,
    dense_weights,
    held,
    paged_store,
    queries,
    rows_of,
)

LAYERS, LOWER, UPPER = 4, 2, 3
SHARING = spec(share="minicache")
VECTORS = hnp.arrays(np.float32, (3, 2, 4), elements=st.floats(-100, 100, width=32))


def test_layers_are_paired_from_the_middle_on() -> None:
    assert [lower_of(layer, 6) for layer in range(6)] == [None, None, None, None, 3, None]
    assert [lower_of(layer, 8) for layer in range(8)] == [None, None, None, None, None, 4, None, 6]


@given(VECTORS, VECTORS)
def test_a_merge_keeps_magnitudes_and_lies_on_the_arc(lower: np.ndarray, upper: np.ndarray) -> None:
    merged = merge(torch.from_numpy(lower), torch.from_numpy(upper))
    assert torch.isfinite(merged.shared).all()
    for below, above, shared, ratio in zip(
        lower, upper, merged.shared.numpy(), merged.ratio.tolist(), strict=True
    ):
        lengths = [np.linalg.norm(each.astype(np.float64)) for each in (below, above, shared)]
        if min(lengths[:2]) < 1e-3:
            continue
        cosines = [
            (a * b).sum()
            for a, b in ((below / lengths[0], above / lengths[1]), (below / lengths[0], shared / lengths[2]))
        ]
        whole, part = np.arccos(np.clip(cosines, -1, 1))
        if not 0.01 < whole < 3.1:  # opposite directions have no arc
            continue
        assert lengths[2] == pytest.approx(lengths[0], rel=1e-4)
        assert lengths[2] * ratio == pytest.approx(lengths[1], rel=1e-4)
        assert part == pytest.approx(TOWARDS_UPPER * whole, abs=2e-3)


def test_one_direction_is_kept_exactly() -> None:
    lower = torch.randn(5, 2, 8, generator=torch.Generator().manual_seed(1))
    merged = merge(lower, 3 * lower)
    torch.testing.assert_close(merged.shared, lower)
    torch.testing.assert_close(merged.ratio, torch.full((5,), 3.0))
    nothing = merge(0 * lower, lower)
    assert (nothing.cosine == -1).all()
    assert torch.isfinite(nothing.ratio).all()


def filled(packing: KvSpec, count: int = 100, strange: tuple[int, ...] = (30, 31)) -> tuple[TorchStore, int]:
    """Every layer holds nearly the same directions, the upper ones 2 times as long; `strange` tokens differ."""
    store = TorchStore(LAYERS, HEADS, DIM, 1 << 22, torch.float32, torch.device("cpu"))
    row = store.open(packing)
    random = torch.Generator().manual_seed(3)
    keys, values = torch.randn(2, count, HEADS, DIM, generator=random)
    for layer in range(LAYERS):
        more = torch.randn(2, count, HEADS, DIM, generator=random) * 0.05
        more[:, list(strange)] *= 40
        made = (1 + layer // UPPER) * (torch.stack([keys, values]) + more)
        store.append(layer, rows_of(row, count), torch.arange(count), made[0], made[1])
    return store, row


def test_the_upper_layer_of_a_pair_reads_the_lower_ones_directions() -> None:
    store, row = filled(SHARING)
    before = {layer: held(store.read(layer, row)) for layer in range(LAYERS)}
    pages, size = store.held_pages(row), store.held_bytes(row)
    for layer in range(LAYERS):
        store.pack(layer, row, 4, 92)
    for layer in (0, 1):
        for old, new in zip(before[layer], held(store.read(layer, row)), strict=True):
            assert np.array_equal(old.keys, new.keys)
    apart = [*range(4), 30, 31, *range(92, 100)]
    shared = [p for p in range(100) if p not in apart]
    lower, upper = (held(store.read(layer, row)) for layer in (LOWER, UPPER))
    for layer, now in ((LOWER, lower), (UPPER, upper)):
        for old, new in zip(before[layer], now, strict=True):
            assert new.positions.tolist() == list(range(100))
            for name in ("keys", "values"):
                was, is_ = getattr(old, name), getattr(new, name)
                assert np.array_equal(was[apart], is_[apart])
                assert 0 < np.linalg.norm(was[shared] - is_[shared]) < 0.1 * np.linalg.norm(was[shared])
    for name in ("keys", "values"):  # one direction: all heads of a token differ by one factor
        ratios = np.concatenate(
            [getattr(u, name) / getattr(v, name) for u, v in zip(upper, lower, strict=True)], axis=1
        )
        np.testing.assert_allclose(
            ratios[shared], ratios[shared][:, :1].repeat(ratios.shape[1], 1), rtol=1e-4
        )
    assert store.counts(UPPER, row) == [100] * HEADS
    # 14 slots of a head stay: one page instead of seven. What is shared is a pointer, a sum, and two ratios.
    assert pages - store.held_pages(row) == HEADS * 6
    freed = HEADS * 6 * (store.page_bytes + 4)
    beside = len(shared) * (HEADS * (8 + 4) + 2 * 4) + 2 * 4
    assert size - store.held_bytes(row) == freed - beside


@pytest.mark.parametrize("packing", [SHARING, spec(share="minicache", quant="int8")], ids=["exact", "int8"])
def test_shared_slots_are_attended_to_as_they_are_read(packing: KvSpec) -> None:
    store, row = filled(packing)
    for layer in range(LAYERS):
        store.pack(layer, row, 4, 92)
    expected = np.zeros((HEADS, 100))
    for step in range(3):
        asked = queries(1, seed=step)
        slots = held(store.read(UPPER, row))
        given = store.attend(UPPER, torch.tensor([row], dtype=torch.int32), asked, torch.tensor([0.5]))
        np.testing.assert_allclose(given[0], dense_attention(slots, asked[0]), rtol=1e-4, atol=1e-5)
        for head, of_head in enumerate(asked[0].numpy().reshape(HEADS, GROUP, DIM)):
            expected[head] = 0.5 * expected[head] + dense_weights(slots[head].keys, of_head).sum(axis=0)
    now = held(store.read(UPPER, row))
    assert np.stack([head.attention for head in now]) == pytest.approx(expected, rel=1e-4, abs=1e-6)
    assert [head.packed.sum() for head in now] == [88 if packing.quant == "int8" else 0] * HEADS


def test_what_is_shared_stays_as_it_is_while_more_comes() -> None:
    store, row = filled(spec(share="minicache", quant="int4"))
    for layer in range(LAYERS):
        store.pack(layer, row, 4, 60)
    once = held(store.read(UPPER, row))
    for step, end in enumerate((61, 70, 92)):
        for layer in range(
            LAYERS
        ):  # while decoding, a layer packs before it appends, the one below has both behind it
            store.pack(layer, row, 4, end)
            one = torch.randn(2, 1, HEADS, DIM, generator=torch.Generator().manual_seed(layer))
            store.append(layer, rows_of(row, 1), torch.tensor([100 + step]), one[0], one[1])
    for old, new in zip(once, held(store.read(UPPER, row)), strict=True):
        assert np.array_equal(old.keys[:60], new.keys[:60])
        assert np.array_equal(old.values[:60], new.values[:60])
        assert new.packed[4:92].all()
        assert new.positions.tolist() == list(range(103))
    store.close(row)
    assert store.free_pages() == store.pages
    assert store.used_bytes() == 0


@pytest.mark.parametrize(
    "changes", [{}, {"quant": "int8", "granularity": "kivi"}], ids=["exact", "int8-kivi"]
)
def test_a_request_is_served_with_shared_layers(changes: dict[str, Any]) -> None:
    """All layers see one stream, so that sharing loses nothing: attention is that without it, in fewer bytes."""
    one = stream(150, 1, HEADS * GROUP, HEADS, DIM)
    given = Stream(*(getattr(one, name).expand(LAYERS, -1, -1, -1) for name in ("queries", "keys", "values")))
    results, sizes = [], []
    for share in ("none", "minicache"):
        store = TorchStore(LAYERS, HEADS, DIM, 1 << 22, torch.float32, torch.device("cpu"))
        attention = attention_over(store, LAYERS, HEADS)
        row = attention.open(spec(share=share, **changes), 110)
        results.append(play(attention, row, given, 110, 40))
        sizes.append(store.held_bytes(row))
        attention.close(row)
        assert store.used_bytes() == 0
    # A value between two codes may fall to either side.
    torch.testing.assert_close(results[1], results[0], rtol=0, atol=5e-3)
    assert sizes[1] < sizes[0] * 0.85  # one layer of four shares, but for sinks and recent tokens


def test_what_cannot_share_is_refused() -> None:
    store = TorchStore(LAYERS, HEADS, DIM, 1 << 22, torch.float32, torch.device("cpu"))
    with pytest.raises(UsageError, match="keeps every token"):
        store.open(spec(share="minicache", evict="knorm", budget={"fraction": 0.5}))
    with pytest.raises(UsageError, match="not held by the compiled kernel"):
        paged_store().open(SHARING)
