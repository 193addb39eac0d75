"""A store so plain that it is the truth for what stands above it: lists of slots in an order not to be relied on.

Packed slots are marked and stay as they are, so that a run without eviction is exact whatever is packed.
"""

import math
import random
from dataclasses import dataclass

import torch

from backends.kvcompress.contracts import PoolFull, Slots
from backends.kvcompress.spec import KvSpec


@dataclass
class Slot:
    key: torch.Tensor
    value: torch.Tensor
    position: int
    attention: float = 0.0
    packed: bool = False


class ListStore:
    """Fulfils `contracts.KvStore`; every change shuffles the slots of the layer."""

    packed = False

    def __init__(
        self, layers: int, heads: int, head_dim: int, pages: int = 1 << 20, page_slots: int = 8
    ) -> None:
        self.layers, self.heads, self.head_dim = layers, heads, head_dim
        self.pages, self.page_slots = pages, page_slots
        self.page_bytes = page_slots * (8 * head_dim + 4)
        self.rows: dict[int, list[list[list[Slot]]]] = {}
        self.specs: dict[int, KvSpec] = {}
        self._shuffle = random.Random(0)

    def open(self, spec: KvSpec) -> int:
        row = next(n for n in range(len(self.rows) + 1) if n not in self.rows)
        self.rows[row] = [[[] for _ in range(self.heads)] for _ in range(self.layers)]
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
        for row, position, key, value in zip(rows.tolist(), positions.tolist(), keys, values, strict=True):
            for head, slots in enumerate(self.rows[row][layer]):
                assert position not in [slot.position for slot in slots]
                slots.append(Slot(key[head].clone(), value[head].clone(), position))
                self._shuffle.shuffle(slots)
        if self.free_pages() < 0:
            raise PoolFull

    def attend(
        self, layer: int, rows: torch.Tensor, queries: torch.Tensor, decay: torch.Tensor
    ) -> torch.Tensor:
        results = torch.zeros_like(queries)
        shared = queries.shape[1] // self.heads
        for index, row in enumerate(rows.tolist()):
            for head, slots in enumerate(self.rows[row][layer]):
                asked = slice(head * shared, (head + 1) * shared)
                keys = torch.stack([slot.key for slot in slots])
                given = torch.softmax(queries[index, asked] @ keys.T * self.head_dim**-0.5, -1)
                results[index, asked] = given @ torch.stack([slot.value for slot in slots])
                if not decay[index].isnan():
                    for slot, more in zip(slots, given.sum(0).tolist(), strict=True):
                        slot.attention = float(decay[index]) * slot.attention + more
        return results

    def read(self, layer: int, row: int, vectors: bool = True) -> Slots:
        held = self.rows[row][layer]
        most = max(len(slots) for slots in held)
        keys, values = torch.zeros(2, self.heads, most, self.head_dim)
        positions = torch.full((self.heads, most), -1)
        packed = torch.zeros(self.heads, most, dtype=torch.bool)
        attention = torch.zeros(self.heads, most)
        for head, slots in enumerate(held):
            for index, slot in enumerate(slots):
                keys[head, index], values[head, index] = slot.key, slot.value
                positions[head, index], packed[head, index] = slot.position, slot.packed
                attention[head, index] = slot.attention
        if not vectors:
            keys, values = keys[:, :0], values[:, :0]
        return Slots(keys, values, positions, packed, attention)

    def add_attention(self, layer: int, row: int, decay: float, given: torch.Tensor) -> None:
        for head, slots in enumerate(self.rows[row][layer]):
            for slot, more in zip(slots, given[head].tolist(), strict=False):
                slot.attention = decay * slot.attention + more

    def keep(self, layer: int, row: int, kept: torch.Tensor) -> None:
        for slots, stay in zip(self.rows[row][layer], kept.tolist(), strict=True):
            slots[:] = [slot for slot, stays in zip(slots, stay, strict=False) if stays]
            self._shuffle.shuffle(slots)

    def move(self, layer: int, row: int, keys: torch.Tensor, positions: torch.Tensor) -> None:
        for head, slots in enumerate(self.rows[row][layer]):
            for index, slot in enumerate(slots):
                assert not slot.packed
                slot.key, slot.position = keys[head, index].clone(), int(positions[head, index])

    def pack(self, layer: int, row: int, first: int, end: int) -> None:
        for slots in self.rows[row][layer]:
            for slot in slots:
                slot.packed |= first <= slot.position < end
            self._shuffle.shuffle(slots)

    def counts(self, layer: int, row: int) -> torch.Tensor:
        return torch.tensor([len(slots) for slots in self.rows[row][layer]])

    def held_pages(self, row: int) -> int:
        return sum(
            self.pages_for(self.specs[row], sum(not s.packed for s in slots), sum(s.packed for s in slots))
            for layer in self.rows[row]
            for slots in layer
        )

    def held_bytes(self, row: int) -> int:
        return self.held_pages(row) * self.page_bytes + 64

    def used_bytes(self) -> int:
        return sum(self.held_bytes(row) for row in self.rows)
