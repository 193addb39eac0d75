"""A store so plain that it is the truth for what stands above it: slots in an order that is not to be relied on.

Packed slots are marked and stay as they are, so that a run without eviction is exact whatever is packed.
"""

import math

import numpy as np
import torch

from backends.kvcompress.contracts import PoolFull, Slots
from backends.kvcompress.spec import KvSpec


class Head:
    """The slots of one (request, layer, KV head): keys and values [n, D], the rest [n]."""

    def __init__(self, head_dim: int) -> None:
        self.keys, self.values = np.zeros((2, 0, head_dim), np.float32)
        self.positions = np.zeros(0, np.int64)
        self.attention = np.zeros(0, np.float32)
        self.packed = np.zeros(0, bool)

    def take(self, which: np.ndarray) -> None:
        for name, held in vars(self).items():
            setattr(self, name, held[which])

    def add(
        self, keys: np.ndarray, values: np.ndarray, positions: np.ndarray, attention: np.ndarray | None = None
    ) -> None:
        more = Head(keys.shape[1])
        more.keys, more.values, more.positions = keys, values, positions
        more.attention = np.zeros(len(keys), np.float32) if attention is None else attention
        more.packed = np.zeros(len(keys), bool)
        for name, held in vars(self).items():
            setattr(self, name, np.concatenate((held, getattr(more, name))))
        assert len(np.unique(self.positions)) == len(self.positions)


class ListStore:
    """Fulfils `contracts.KvStore`; every change shuffles the slots of the layer."""

    packed = False

    def __init__(
        self, layers: int, heads: int, head_dim: int, pages: int = 1 << 20, page_slots: int = 8
    ) -> None:
        self.layers, self.heads, self.head_dim = layers, heads, head_dim
        self.pages, self.page_slots = pages, page_slots
        self.page_bytes = page_slots * (8 * head_dim + 4)
        self.rows: dict[int, list[list[Head]]] = {}
        self.specs: dict[int, KvSpec] = {}
        self._random = np.random.default_rng(0)

    def open(self, spec: KvSpec) -> int:
        row = next(n for n in range(len(self.rows) + 1) if n not in self.rows)
        self.rows[row] = [[Head(self.head_dim) for _ in range(self.heads)] for _ in range(self.layers)]
        self.specs[row] = spec
        return row

    def close(self, row: int) -> None:
        del self.rows[row], self.specs[row]

    def free_pages(self) -> int:
        return self.pages - sum(self.held_pages(row) for row in self.rows)

    def pages_for(self, spec: KvSpec, exact: int, packed: int) -> int:
        return math.ceil(exact / self.page_slots) + math.ceil(packed / self.page_slots)

    def append(
        self,
        layer: int,
        rows: torch.Tensor,
        positions: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
    ) -> None:
        for row in set(rows.tolist()):
            mine = (rows == row).numpy()
            for number, head in enumerate(self.rows[row][layer]):
                head.add(
                    keys[:, number].numpy()[mine], values[:, number].numpy()[mine], positions.numpy()[mine]
                )
            self._shuffle(layer, row)
        if self.free_pages() < 0:
            raise PoolFull

    def add_chunk(
        self,
        layer: int,
        row: int,
        positions: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        given: torch.Tensor | None,
        kept: torch.Tensor | None,
    ) -> None:
        everything = torch.ones(self.heads, len(positions), dtype=torch.bool)
        for number, stays in enumerate((everything if kept is None else kept[:, -len(positions) :]).numpy()):
            self.rows[row][layer][number].add(
                keys[:, number].numpy()[stays],
                values[:, number].numpy()[stays],
                positions.numpy()[stays],
                None if given is None else given[number, -len(positions) :].numpy()[stays],
            )
        self._shuffle(layer, row)
        if self.free_pages() < 0:
            raise PoolFull

    def attend(
        self, layer: int, rows: torch.Tensor, queries: torch.Tensor, decay: torch.Tensor
    ) -> torch.Tensor:
        results = torch.zeros_like(queries)
        shared = queries.shape[1] // self.heads
        for index, row in enumerate(rows.tolist()):
            for number, head in enumerate(self.rows[row][layer]):
                asked = slice(number * shared, (number + 1) * shared)
                scores = queries[index, asked].numpy() @ head.keys.T / self.head_dim**0.5
                given = np.exp(scores - scores.max(1, keepdims=True))
                given /= given.sum(1, keepdims=True)
                results[index, asked] = torch.from_numpy(given @ head.values)
                if not decay[index].isnan():
                    head.attention = np.float32(decay[index]) * head.attention + given.sum(0)
        return results

    def read(self, layer: int, row: int, vectors: bool = True) -> Slots:
        held = self.rows[row][layer]
        most = max(len(head.positions) for head in held)

        def padded(name: str, padding: float) -> torch.Tensor:
            parts = [torch.from_numpy(getattr(head, name)) for head in held]
            whole = torch.full((len(held), most, *parts[0].shape[1:]), padding, dtype=parts[0].dtype)
            for into, part in zip(whole, parts, strict=True):
                into[: len(part)] = part
            return whole

        keys, values = padded("keys", 0), padded("values", 0)
        if not vectors:
            keys, values = keys[:, :0], values[:, :0]
        return Slots(keys, values, padded("positions", -1), padded("packed", 0), padded("attention", 0))

    def add_attention(self, layer: int, row: int, decay: float, given: torch.Tensor) -> None:
        for head, more in zip(self.rows[row][layer], given.numpy(), strict=True):
            head.attention = decay * head.attention + more[: len(head.attention)]

    def keep(self, layer: int, row: int, kept: torch.Tensor) -> None:
        for head, stay in zip(self.rows[row][layer], kept.numpy(), strict=True):
            head.take(stay[: len(head.positions)])
        self._shuffle(layer, row)

    def move(self, layer: int, row: int, keys: torch.Tensor, positions: torch.Tensor) -> None:
        for number, head in enumerate(self.rows[row][layer]):
            assert not head.packed.any()
            head.keys = keys[number, : len(head.keys)].numpy()
            head.positions = positions[number, : len(head.positions)].numpy()

    def pack(self, layer: int, row: int, first: int, end: int) -> None:
        for head in self.rows[row][layer]:
            head.packed = head.packed | ((head.positions >= first) & (head.positions < end))
        self._shuffle(layer, row)

    def counts(self, layer: int, row: int) -> list[int]:
        return [len(head.positions) for head in self.rows[row][layer]]

    def held_pages(self, row: int) -> int:
        spec = self.specs[row]
        packed = [int(head.packed.sum()) for layer in self.rows[row] for head in layer]
        slots = [len(head.packed) for layer in self.rows[row] for head in layer]
        return sum(self.pages_for(spec, n - of, of) for n, of in zip(slots, packed, strict=True))

    def held_bytes(self, row: int) -> int:
        return self.held_pages(row) * self.page_bytes + 64

    def used_bytes(self) -> int:
        return sum(self.held_bytes(row) for row in self.rows)

    def _shuffle(self, layer: int, row: int) -> None:
        for head in self.rows[row][layer]:
            head.take(self._random.permutation(len(head.positions)))
