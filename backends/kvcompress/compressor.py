"""Evicts and packs what one request holds in one layer: for each chunk of its prompt, and before a decode step.

Eviction comes before what is new is added, so that what does not stay of a chunk need not be written. A budget holds
between two passes. Within one, the layer at work may be beyond it: what stays of a chunk is exact until it is packed,
which counts against a budget in bytes, and `TorchStore` holds all of the chunk for a moment. With when=prompt the
whole prompt is held until it is read. While decoding, an eviction leaves some slots free, so that most steps evict
nothing.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import torch

from backends.kvcompress.budgets import PACKED_TOGETHER, Allowance, Shape, below, slots_within
from backends.kvcompress.combinations import check_positions
from backends.kvcompress.contracts import KvStore, LayerView, Rope, Slots
from backends.kvcompress.held_request import HeldRequest
from backends.kvcompress.policies import policy
from backends.kvcompress.selection import select
from backends.kvcompress.spec import Budget, KvSpec, check
from harness.core.errors import UsageError

RetrievalHeads = Callable[[], torch.Tensor]  # [L, H] bool
_LOOK_AHEAD = 64  # decode steps after which a request that has room is looked at again


class Compressor:
    """At work on the rows of `store`, for a model of that shape and those rotary positions."""

    def __init__(
        self, store: KvStore, shape: Shape, rope: Rope, retrieval: RetrievalHeads | None = None
    ) -> None:
        self._store = store
        self._shape = shape
        self._rope = rope
        self._retrieval = None if retrieval is None else cache(retrieval)

    def open(self, spec: KvSpec, prompt: int) -> HeldRequest:
        """A row for a request. Raises UsageError for an unknown policy and for what does not go together."""
        method = policy(spec.evict)
        check_positions(spec)
        row = self._store.open(spec)
        try:
            allowance = self._allowance(spec, prompt, row)
        except UsageError:
            self._store.close(row)
            raise
        layers = self._shape.layers
        return HeldRequest(row, spec, prompt, method, allowance, [0] * layers, [0] * layers)

    def rebudget(self, held: HeldRequest, budget: Budget) -> None:
        """Another budget for a request that has one; it is within it from its next chunk or decode step on."""
        held.spec = replace(held.spec, budget=budget)
        check(held.spec)
        held.allowance = self._allowance(held.spec, held.prompt, held.row)
        held.due = [0] * self._shape.layers

    def shrink(
        self,
        held: HeldRequest,
        layer: int,
        slots: Slots,
        tokens: int,
        seen: int,
        queries: torch.Tensor | None,
        query_positions: torch.Tensor | None,
    ) -> torch.Tensor | None:
        """Evict for a chunk of so many tokens, once the request has seen so many in all.

        slots: what is held, in the order of the store, and then the chunk's, which it does not hold yet. queries
        [Q, w, D]: the latest, with their positions [w], if the policy looks at them. Returns which slots stay, those
        of the chunk behind those that were held, [H, n + tokens], or None where nothing is evicted.
        """
        targets = held.allowance.of_heads(layer, seen)
        counts = self._store.counts(layer, held.row)
        if held.spec.evict == "none" or not _exceeds(counts, held.spec, targets, tokens):
            return None
        kept = self._selected(
            held, self._view(held, layer, slots, seen, targets, queries, query_positions), targets
        )
        if kept.shape[1] > tokens:
            self._store.keep(layer, held.row, kept)
        return kept

    def after_chunk(self, held: HeldRequest, layer: int, evicted: bool) -> None:
        """Put right what a chunk that was added leaves to be done; evicted: whether anything was for it."""
        if evicted:
            self._reindex(held, layer)
        self._pack(held, layer)
        held.due[layer] = 0

    def before_step(self, held: HeldRequest, layer: int, seen: int) -> None:
        """Make room for one more slot in each head, where `seen` tokens were seen, and pack what is due."""
        allowed = held.allowance.of_heads(layer, seen + 1)
        counts = self._store.counts(layer, held.row)
        if held.spec.evict != "none" and _exceeds(counts, held.spec, allowed, 1):
            slots = self._store.read(layer, held.row, vectors=held.policy.vectors)
            targets = _with_room(counts, held.spec, allowed)
            view = self._view(held, layer, slots, seen, targets, None, None)
            self._store.keep(layer, held.row, self._selected(held, view, targets))
            self._reindex(held, layer)
        self._pack(held, layer)
        held.due[layer] = self._due(held, layer, seen)

    def _allowance(self, spec: KvSpec, prompt: int, row: int) -> Allowance:
        most = None
        if spec.budget.bytes is not None:
            tables = self._store.held_bytes(row) - self._store.held_pages(row) * self._store.page_bytes
            most = slots_within(spec.budget.bytes, spec, self._store, self._shape, tables)
        return Allowance(spec, prompt, self._shape, most, self._roles(spec))

    def _roles(self, spec: KvSpec) -> torch.Tensor | None:
        if spec.spread != "retrieval":
            return None
        if self._retrieval is None:
            raise UsageError(
                "kv.spread=retrieval needs the model's retrieval heads, which nobody measured here."
            )
        return self._retrieval()

    def _view(
        self,
        held: HeldRequest,
        layer: int,
        slots: Slots,
        seen: int,
        targets: list[int],
        queries: torch.Tensor | None,
        query_positions: torch.Tensor | None,
    ) -> LayerView:
        return LayerView(
            slots=slots,
            queries=queries,
            query_positions=query_positions,
            seen=seen,
            budget=sum(targets) // len(targets),
            sinks=held.spec.sinks,
            layer=layer,
            layers=self._shape.layers,
            rope=self._rope,
        )

    def _selected(self, held: HeldRequest, view: LayerView, targets: list[int]) -> torch.Tensor:
        spec = held.spec
        return select(
            held.policy.score(view),
            view.slots.positions,
            targets,
            spec.sinks,
            spec.recent,
            held.next[view.layer],
            spec.spread == "adakv",
        )

    def _reindex(self, held: HeldRequest, layer: int) -> None:
        if not held.spec.reindex:
            return
        slots = self._store.read(layer, held.row)
        places = slots.positions.argsort(1).argsort(1)
        self._store.move(layer, held.row, self._rope.rotate(slots.keys, places - slots.positions), places)
        held.next[layer] = places.shape[1]

    def _pack(self, held: HeldRequest, layer: int) -> None:
        if held.spec.quant != "none" or held.spec.share != "none":
            self._store.pack(layer, held.row, held.spec.sinks, held.next[layer] - held.spec.recent)

    def _due(self, held: HeldRequest, layer: int, seen: int) -> int:
        """The tokens seen at which the next step has to look here first."""
        packs = held.spec.quant != "none" or held.spec.share != "none"
        ahead = PACKED_TOGETHER if packs else _LOOK_AHEAD
        if held.spec.evict == "none":
            return seen + ahead
        counts = self._store.counts(layer, held.row)
        for steps in range(1, ahead):
            allowed = held.allowance.of_heads(layer, seen + steps + 1)
            if _exceeds(counts, held.spec, allowed, steps + 1):
                return seen + steps
        return seen + ahead


def _with_room(counts: list[int], spec: KvSpec, allowed: list[int]) -> list[int]:
    """What an eviction leaves while decoding, so that not every step evicts; a head with room loses nothing."""
    apart = spec.spread != "adakv"
    return [
        most if apart and held < most else below(most) for held, most in zip(counts, allowed, strict=True)
    ]


def _exceeds(counts: list[int], spec: KvSpec, allowed: list[int], more: int) -> bool:
    """Whether the slots of a layer's heads, [H], and `more` of each are more than `allowed`, each or in all."""
    if spec.spread == "adakv":
        return sum(counts) + more * len(counts) > sum(allowed)
    return any(held + more > most for held, most in zip(counts, allowed, strict=True))
