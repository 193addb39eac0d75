"""Stores of every kind for tests, what fills them, and dense attention in numpy to hold them against."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from backends.kvcompress.contracts import KvStore, Slots
from backends.kvcompress.spec import KvSpec
from backends.kvcompress.store.paged import PagedStore
from backends.kvcompress.store_torch import TorchStore
from harness.core.errors import UsageError

LAYERS, HEADS, GROUP, DIM = 2, 2, 3, 64
QUANTS = ["int8", "fp8", "int4", "int3", "int2"]
NO_DECAY = float("nan")
Make = Callable[..., KvStore]


def torch_store(pool_bytes: int = 1 << 24) -> KvStore:
    return TorchStore(LAYERS, HEADS, DIM, pool_bytes, torch.float32, torch.device("cpu"))


def paged_store(pool_bytes: int = 1 << 24) -> KvStore:
    return PagedStore(
        LAYERS, HEADS, GROUP, DIM, "f32", pool_bytes, max_rows=8, context_length=2048, threads=1,
        has_attention=lambda spec: True,
    )  # fmt: skip


STORES: dict[str, Callable[..., KvStore]] = {"torch": torch_store, "paged": paged_store}


@dataclass
class Tokens:
    """keys, values [n, H, D] at positions [n]."""

    keys: torch.Tensor
    values: torch.Tensor
    positions: torch.Tensor

    def append(self, store: KvStore, layer: int, row: int) -> None:
        store.append(layer, rows_of(row, len(self.positions)), self.positions, self.keys, self.values)


def opened(store: KvStore, packing: KvSpec) -> int:
    """A row; the test is skipped where this kind of store does not pack so, and says it."""
    try:
        return store.open(packing)
    except UsageError as refused:
        pytest.skip(str(refused))


def tokens(count: int, first: int = 0, seed: int = 0) -> Tokens:
    """Gaussian, with one channel of the keys far off zero, as models have them."""
    random = torch.Generator().manual_seed(1000 * seed + first)
    keys, values = torch.randn(2, count, HEADS, DIM, generator=random)
    keys[..., 3] += 8
    return Tokens(keys, values, torch.arange(first, first + count))


def queries(count: int, seed: int = 0) -> torch.Tensor:
    """[count, Q, D]"""
    return torch.randn(count, HEADS * GROUP, DIM, generator=torch.Generator().manual_seed(99 + seed))


def rows_of(row: int, count: int) -> torch.Tensor:
    return torch.full((count,), row, dtype=torch.int32)


@dataclass
class Held:
    """What one head holds, in the order of positions."""

    positions: np.ndarray
    keys: np.ndarray
    values: np.ndarray
    packed: np.ndarray
    attention: np.ndarray


def held(slots: Slots) -> list[Held]:
    """Of each head, padding checked and left out."""
    heads = []
    for head, positions in enumerate(slots.positions.numpy()):
        padding = positions < 0
        assert not slots.keys[head].numpy()[padding].any()
        assert not slots.values[head].numpy()[padding].any()
        assert not slots.packed[head].numpy()[padding].any()
        assert not slots.attention[head].numpy()[padding].any()
        order = np.argsort(positions, kind="stable")[padding.sum() :]
        heads.append(
            Held(
                positions[order],
                slots.keys[head].numpy()[order],
                slots.values[head].numpy()[order],
                slots.packed[head].numpy()[order],
                slots.attention[head].numpy()[order],
            )
        )
    return heads


def dense_weights(keys: np.ndarray, of_head: np.ndarray) -> np.ndarray:
    """softmax(q·k/sqrt(D)): keys [n, D], the head's queries [G, D] -> [G, n], in double precision."""
    scores = of_head.astype(np.float64) @ keys.astype(np.float64).T / np.sqrt(keys.shape[1])
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def dense_attention(heads: list[Held], asked: torch.Tensor) -> np.ndarray:
    """asked [Q, D] -> [Q, D]"""
    by_head = asked.numpy().reshape(len(heads), -1, asked.shape[-1])
    return np.concatenate(
        [
            dense_weights(head.keys, of_head) @ head.values
            for head, of_head in zip(heads, by_head, strict=True)
        ]
    )


def name_of(packing: KvSpec) -> str:
    words = [packing.quant, packing.granularity, str(packing.group)]
    return "-".join(words + [w for w in ("codebook", "rotate") if getattr(packing, w)])


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
