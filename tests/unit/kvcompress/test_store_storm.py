"""A storm of requests over a small pool: nothing leaks, nothing changes hands, whatever comes in whatever order."""

from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from backends.kvcompress.contracts import PoolFull
from backends.kvcompress.spec import KvSpec
from harness.core.errors import UsageError
from tests.support.kv import spec
from tests.support.kv_stores import (
    DIM,
    GROUP,
    HEADS,
    LAYERS,
    STORES,
    Held,
    dense_attention,
    dense_weights,
    held,
    queries,
    tokens,
)

PACKINGS = [
    spec(),
    spec(quant="int8"),
    spec(quant="int8", value_quant="int3", codebook=True, rotate=True),
    spec(quant="int4", granularity="tensor"),
    spec(quant="int2", granularity="kivi", group=8),
]
PAGES = 40


@dataclass
class Kept:
    """What one layer of a request should hold: for each head, position -> (key, value)."""

    heads: list[dict[int, tuple[np.ndarray, np.ndarray]]] = field(
        default_factory=lambda: [{} for _ in range(HEADS)]
    )
    attention: list[dict[int, float]] = field(default_factory=lambda: [{} for _ in range(HEADS)])
    packed: list[set[int]] = field(default_factory=lambda: [set() for _ in range(HEADS)])
    seen: int = 0


class Storm(RuleBasedStateMachine):
    """Compared after each step with plain dictionaries; `kind` names the store."""

    kind: str

    def __init__(self) -> None:
        super().__init__()
        self.store = STORES[self.kind](STORES[self.kind]().page_bytes * PAGES)
        self.rows: dict[int, list[Kept]] = {}
        self.specs: dict[int, KvSpec] = {}

    @precondition(lambda self: len(self.rows) < 4)
    @rule(packing=st.sampled_from(PACKINGS))
    def open(self, packing: KvSpec) -> None:
        try:
            row = self.store.open(packing)
        except UsageError:  # this kind of store does not pack so
            return
        assert row not in self.rows
        self.rows[row], self.specs[row] = [Kept() for _ in range(LAYERS)], packing

    @precondition(lambda self: self.rows)
    @rule(data=st.data(), layer=st.integers(0, LAYERS - 1), count=st.one_of(st.just(1), st.integers(1, 60)))
    def append(self, data: st.DataObject, layer: int, count: int) -> None:
        row = data.draw(st.sampled_from(sorted(self.rows)))
        kept = self.rows[row][layer]
        more = tokens(count, first=kept.seen, seed=row)
        try:
            more.append(self.store, layer, row)
        except PoolFull:
            return  # and the invariants say that nothing has changed
        for head in range(HEADS):
            for at, key, value in zip(
                more.positions.tolist(), more.keys[:, head], more.values[:, head], strict=True
            ):
                kept.heads[head][at] = (key.numpy(), value.numpy())
                kept.attention[head][at] = 0.0
        kept.seen += count

    @precondition(lambda self: self.rows)
    @rule(
        data=st.data(),
        layer=st.integers(0, LAYERS - 1),
        count=st.integers(1, 60),
        share=st.sampled_from([None, 0.1, 0.9]),
        columns=st.integers(0, 3),
    )
    def add_chunk(
        self, data: st.DataObject, layer: int, count: int, share: float | None, columns: int
    ) -> None:
        """share: of the tokens that each head keeps. columns: that come before those of the chunk."""
        row = data.draw(st.sampled_from(sorted(self.rows)))
        random = np.random.default_rng(data.draw(st.integers(0, 2**32)))
        kept, shape = self.rows[row][layer], (HEADS, columns + count)
        more = tokens(count, first=kept.seen, seed=row)
        given = random.random(shape, np.float32)
        stays = random.random(shape) < (1.0 if share is None else share)
        chosen = None if share is None else torch.from_numpy(stays)
        try:
            self.store.add_chunk(
                layer, row, more.positions, more.keys, more.values, torch.from_numpy(given), chosen
            )
        except PoolFull:
            return  # and the invariants say that nothing has changed
        for head in range(HEADS):
            for number in np.flatnonzero(stays[head, columns:]):
                at = kept.seen + int(number)
                kept.heads[head][at] = (more.keys[number, head].numpy(), more.values[number, head].numpy())
                kept.attention[head][at] = float(given[head, columns + number])
        kept.seen += count

    @precondition(lambda self: self.rows)
    @rule(data=st.data(), layer=st.integers(0, LAYERS - 1), share=st.sampled_from([0.0, 0.2, 0.9]))
    def keep(self, data: st.DataObject, layer: int, share: float) -> None:
        row = data.draw(st.sampled_from(sorted(self.rows)))
        random = np.random.default_rng(data.draw(st.integers(0, 2**32)))
        positions = self.store.read(layer, row, vectors=False).positions
        chosen = torch.from_numpy(random.random(positions.shape) < share)
        self.store.keep(layer, row, chosen)
        kept = self.rows[row][layer]
        for head in range(HEADS):
            for at in positions[head][~chosen[head]].tolist():
                if at >= 0:
                    del kept.heads[head][at], kept.attention[head][at]
                    kept.packed[head].discard(at)

    @precondition(lambda self: self.rows)
    @rule(
        data=st.data(), layer=st.integers(0, LAYERS - 1), first=st.integers(0, 60), length=st.integers(1, 200)
    )
    def pack(self, data: st.DataObject, layer: int, first: int, length: int) -> None:
        row = data.draw(st.sampled_from(sorted(self.rows)))
        full = False
        try:
            self.store.pack(layer, row, first, first + length)
        except PoolFull:
            full = True
        wanted, kept = self.specs[row], self.rows[row][layer]
        for head, now in enumerate(held(self.store.read(layer, row))):
            candidates = [
                p for p in kept.heads[head] if first <= p < first + length and p not in kept.packed[head]
            ]
            new = [int(p) for p in now.positions[now.packed] if int(p) not in kept.packed[head]]
            assert set(new) <= set(candidates)
            if not full and wanted.quant != "none":
                group = wanted.group if wanted.granularity == "kivi" else 1
                assert new == sorted(candidates)[: len(candidates) // group * group]
            for at in new:
                index = int(np.searchsorted(now.positions, at))
                kept.heads[head][at] = (now.keys[index].copy(), now.values[index].copy())
            kept.packed[head] |= set(new)

    def _holding(self) -> list[tuple[int, int]]:
        """(layer, row) where every head holds something, which alone can be attended to."""
        return [
            (layer, row)
            for row, layers in sorted(self.rows.items())
            for layer in range(LAYERS)
            if all(layers[layer].heads)
        ]

    @precondition(lambda self: self._holding())
    @rule(data=st.data(), decay=st.sampled_from([0.0, 0.5, 1.0, float("nan")]))
    def attend(self, data: st.DataObject, decay: float) -> None:
        layer, _ = data.draw(st.sampled_from(self._holding()))
        together = [row for other, row in self._holding() if other == layer]
        rows = data.draw(st.lists(st.sampled_from(together), min_size=1, unique=True))
        asked = queries(len(rows), seed=data.draw(st.integers(0, 5)))
        given = self.store.attend(
            layer, torch.tensor(rows, dtype=torch.int32), asked, torch.full((len(rows),), decay)
        )
        for row, query, result in zip(rows, asked, given, strict=True):
            heads = [self._as_held(row, layer, head) for head in range(HEADS)]
            np.testing.assert_allclose(result, dense_attention(heads, query), rtol=1e-4, atol=1e-4)
            if np.isnan(decay):
                continue
            for head, of_head in enumerate(query.numpy().reshape(HEADS, GROUP, DIM)):
                weights = dense_weights(heads[head].keys, of_head).sum(axis=0)
                sums = self.rows[row][layer].attention[head]
                for at, weight in zip(heads[head].positions.tolist(), weights.tolist(), strict=True):
                    sums[at] = decay * sums[at] + weight

    @precondition(lambda self: self.rows)
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        row = data.draw(st.sampled_from(sorted(self.rows)))
        self.store.close(row)
        del self.rows[row], self.specs[row]

    def _as_held(self, row: int, layer: int, head: int) -> Held:
        kept = self.rows[row][layer]
        positions = np.array(sorted(kept.heads[head]), dtype=np.int64)
        keys, values = (
            np.array([kept.heads[head][at][i] for at in positions.tolist()], dtype=np.float32).reshape(
                -1, DIM
            )
            for i in (0, 1)
        )
        packed = np.array([at in kept.packed[head] for at in positions.tolist()], dtype=bool)
        attention = np.array([kept.attention[head][at] for at in positions.tolist()])
        return Held(positions, keys, values, packed, attention)

    @invariant()
    def pages_are_free_or_held_by_one(self) -> None:
        taken = sum(self.store.held_pages(row) for row in self.rows)
        assert taken + self.store.free_pages() == self.store.pages == PAGES
        assert self.store.used_bytes() == sum(self.store.held_bytes(row) for row in self.rows)

    @invariant()
    def every_row_holds_its_own(self) -> None:
        for row, layers in self.rows.items():
            for layer in range(len(layers)):
                for head, now in enumerate(held(self.store.read(layer, row))):
                    wanted = self._as_held(row, layer, head)
                    for name in ("positions", "keys", "values", "packed"):
                        assert np.array_equal(getattr(now, name), getattr(wanted, name)), name
                    np.testing.assert_allclose(now.attention, wanted.attention, rtol=1e-3, atol=1e-5)

    def teardown(self) -> None:
        for row in list(self.rows):
            self.store.close(row)
        assert self.store.free_pages() == PAGES
        assert self.store.used_bytes() == 0


@pytest.mark.parametrize("kind", sorted(STORES))
def test_a_storm_leaks_nothing(kind: str) -> None:
    of_kind = type("Storm", (Storm,), {"kind": kind})
    run_state_machine_as_test(
        of_kind, settings=settings(max_examples=25, stateful_step_count=30, deadline=None)
    )
