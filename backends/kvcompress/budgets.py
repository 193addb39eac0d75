"""How many slots a request may hold, at each moment, in each layer."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from backends.kvcompress.combinations import SHARED_BY_TOKENS, check_holes
from backends.kvcompress.contracts import KvStore
from backends.kvcompress.spec import KvSpec
from harness.core.errors import UsageError

PACKED_TOGETHER = 8  # tokens that became older than `recent` while decoding, which are packed in one go
MARGIN = 32  # most slots that an eviction while decoding goes below the budget, so that few steps evict
PYRAMID = 20  # PyramidKV's beta: the last layer has 1/20 of an even share (Cai et al. 2024, arXiv 2406.02069)
FLOOR_OF_OTHERS = 0.25  # of an even share, which retrieval heads leave to each of the others
_TABLE_ENTRY = 8  # most bytes that a page takes in the tables of a store
_MOST_TOKENS = 1 << 22


@dataclass(frozen=True, slots=True)
class Shape:
    """layers and KV heads of the model."""

    layers: int
    heads: int


def exact_slots(spec: KvSpec, slots: int) -> int:
    """Of so many slots of a head, the most that are not packed."""
    if spec.quant == "none":
        return slots
    waiting = spec.group - 1 if spec.granularity in SHARED_BY_TOKENS else 0
    return min(slots, spec.sinks + spec.recent + PACKED_TOGETHER + waiting)


def most_pages(pages_for: Callable[[KvSpec, int, int], int], spec: KvSpec, slots: int) -> int:
    """Of a head that holds so many slots, however many of them wait to be packed. pages_for: `KvStore.pages_for`."""
    if spec.quant == "none":
        return pages_for(spec, slots, 0)
    least = min(slots, spec.sinks + spec.recent)
    return max(pages_for(spec, exact, slots - exact) for exact in range(least, exact_slots(spec, slots) + 1))


def slots_within(bytes_: int, spec: KvSpec, store: KvStore, shape: Shape, tables: int) -> int:
    """Most slots of a KV head, on average, of a request that takes `bytes_`; tables: bytes that it takes when empty.

    Raises UsageError where not even one slot fits, and where evicted slots leave holes in the pages.
    """
    check_holes(spec)
    heads = shape.layers * shape.heads
    cost = store.page_bytes + _TABLE_ENTRY

    def bytes_of(slots: int) -> int:
        pages = heads * most_pages(store.pages_for, spec, slots)
        if spec.spread != "uniform":  # lengths differ, and each may leave a page of either kind half empty
            pages += heads * (1 if spec.quant == "none" else 2)
        return tables + pages * cost

    if bytes_of(1) > bytes_:
        raise UsageError(
            f"kv.budget.bytes={bytes_} holds no slot of each KV head. Give at least {bytes_of(1)}."
        )
    low, high = 1, _MOST_TOKENS
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if bytes_of(middle) <= bytes_ else (low, middle - 1)
    return low


class Allowance:
    """Slots that one request may hold of a KV head. prompt: tokens of its prompt. most: where the budget is in bytes,
    what they hold. retrieval [L, H] bool: heads that keep everything, as long as FLOOR_OF_OTHERS is left."""

    def __init__(
        self, spec: KvSpec, prompt: int, shape: Shape, most: int | None, retrieval: torch.Tensor | None
    ) -> None:
        self._spec = spec
        self._prompt = prompt
        self._shape = shape
        self._retrieval = None if retrieval is None else retrieval.tolist()
        self._retrieving = 0 if retrieval is None else int(retrieval.sum())
        self._most = most if spec.budget.tokens is None else spec.budget.tokens

    def of_heads(self, layer: int, seen: int) -> list[int]:
        """Of each KV head in this layer when `seen` tokens were seen; with spread "adakv" their sum counts alone."""
        even = self._even(layer, seen)
        if self._retrieval is None:
            return [int(even)] * self._shape.heads
        tokens, retrieving = max(seen, self._prompt), self._retrieving
        heads = self._shape.layers * self._shape.heads
        others = heads - retrieving
        rest = int(max(1, (heads * even - retrieving * tokens) / max(1, others), FLOOR_OF_OTHERS * even))
        whole = min(tokens, int((heads * even - rest * others) / max(1, retrieving)))
        return [whole if retrieves else rest for retrieves in self._retrieval[layer]]

    def slots(self, layer: int, seen: int) -> int:
        """Of a KV head in this layer, on average over its heads, when `seen` tokens were seen."""
        return sum(self.of_heads(layer, seen)) // self._shape.heads

    def _even(self, layer: int, seen: int) -> float:
        tokens = max(seen, self._prompt)
        even: float = tokens
        if self._spec.budget.fraction is not None:
            even = max(1.0, self._spec.budget.fraction * tokens)
        if self._most is not None:
            even = min(tokens, self._most)
        layers = self._shape.layers
        if self._spec.spread == "pyramid" and layers > 1:
            first = min(2 * even - max(1.0, even / PYRAMID), tokens)  # the last layer holds one slot at least
            even = max(1.0, first - 2 * (first - even) * layer / (layers - 1))  # not 0.999… by rounding
        return even


def below(allowed: int) -> int:
    """What an eviction while decoding leaves of `allowed` slots, the one that is to come subtracted."""
    return max(0, allowed - 1 - min(MARGIN, allowed // 16))
