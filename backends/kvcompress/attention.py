"""The attention that the model calls: over the store, with the compressor at work in each layer."""

import math
from dataclasses import replace

import torch

from backends.kvcompress.breadth import breadth_of, looks_at
from backends.kvcompress.budgets import Shape
from backends.kvcompress.compressor import Compressor, RetrievalHeads
from backends.kvcompress.contracts import KvStore, Pass, Rope, Slots
from backends.kvcompress.held_request import HeldRequest
from backends.kvcompress.prefill import attend_chunk, weights_of_queries
from backends.kvcompress.spec import Budget, KvSpec


class PagedAttention:
    """Fulfils `contracts.RequestAttention`, for a model of so many layers and KV heads and its rotary positions.

    retrieval: finds the model's retrieval heads, once, where a request spreads its budget by them. measures: whether
    the breadth of prompts is measured, for a scheduler that asks.
    """

    def __init__(
        self,
        store: KvStore,
        layers: int,
        heads: int,
        rope: Rope,
        retrieval: RetrievalHeads | None = None,
        measures: bool = False,
    ) -> None:
        self._store = store
        self._measures = measures
        self._rope = rope
        self._compressor = Compressor(store, Shape(layers, heads), rope, retrieval)
        self._requests: dict[int, HeldRequest] = {}

    def open(self, spec: KvSpec, prompt: int) -> int:
        """A row of the store for a request of so many prompt tokens; raises UsageError for what cannot be."""
        held = self._compressor.open(spec, prompt)
        self._requests[held.row] = held
        return held.row

    def close(self, row: int) -> None:
        """Free the row."""
        del self._requests[row]
        self._store.close(row)

    def rebudget(self, row: int, budget: Budget) -> None:
        """Another budget for a request that has one, kept from its next token on."""
        self._compressor.rebudget(self._requests[row], budget)

    def breadth(self, row: int) -> float | None:
        """See `RequestAttention`."""
        found = self._requests[row].breadths.values()
        return sum(found) / len(found) if found else None

    def begin(self, tokens: Pass) -> None:
        """Whose tokens the next pass computes; the model then calls this once in each layer, in order."""
        self._chunk = tokens.chunk
        self._rows = tokens.rows
        self._seen = tokens.positions.tolist()  # a token's position is how many its request saw before it
        self._decoding = [self._requests[row] for row in tokens.rows[tokens.chunk :].tolist()]
        self._reading = self._requests[int(tokens.rows[0])] if tokens.chunk else None
        if self._reading is not None:
            seen = self._seen[0] + tokens.chunk
            self._prompt_is_read = tokens.ends_prompt or seen >= self._reading.prompt
            self._weights = _observed(self._reading, tokens.chunk, self._prompt_is_read, tokens.rows.device)
        decays = [held.policy.attention for held in self._decoding]
        self._decay = torch.tensor([math.nan if decay is None else decay for decay in decays])

    def __call__(
        self, layer: int, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> torch.Tensor:
        """queries [T, Q, D], keys and values [T, H, D] of the tokens named by `begin`; returns [T, Q, D]."""
        parts = []
        if self._reading is not None:
            chunk = slice(0, self._chunk)
            parts.append(self._read_chunk(self._reading, layer, queries[chunk], keys[chunk], values[chunk]))
        if self._decoding:
            step = slice(self._chunk, None)
            parts.append(self._decode(layer, queries[step], keys[step], values[step]))
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _decode(
        self, layer: int, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> torch.Tensor:
        seen = self._seen[self._chunk :]
        for held, tokens in zip(self._decoding, seen, strict=True):
            if held.due[layer] <= tokens:
                self._compressor.before_step(held, layer, tokens)
        places = [held.next[layer] for held in self._decoding]
        if places != seen:
            turn = torch.tensor(places, device=keys.device) - torch.tensor(seen, device=keys.device)
            queries = self._rope.rotate(queries, turn[:, None])
            keys = self._rope.rotate(keys, turn[:, None])
        rows = self._rows[self._chunk :]
        self._store.append(layer, rows, torch.tensor(places), keys, values)
        for held in self._decoding:
            held.next[layer] += 1
        return self._store.attend(layer, rows, queries, self._decay)

    def _read_chunk(
        self, held: HeldRequest, layer: int, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> torch.Tensor:
        first, tokens = held.next[layer], len(keys)
        seen = self._seen[0] + tokens
        if first != self._seen[0]:
            turn = torch.tensor(first - self._seen[0], device=keys.device)
            queries, keys = self._rope.rotate(queries, turn), self._rope.rotate(keys, turn)
        positions = torch.arange(first, first + tokens, device=keys.device)
        slots = _with_chunk(self._store.read(layer, held.row), positions, keys, values)
        missing = slots.positions < 0
        padding = missing if missing.any() else None
        if self._measures and looks_at(layer) and padding is None and missing.shape[1] == seen:
            held.breadths[layer] = breadth_of(queries, slots.keys)
        result, given = attend_chunk(queries, slots.keys, slots.values, padding, self._weights)
        held.next[layer] += tokens
        latest = _latest(held, layer, queries, positions, seen)
        kept = None
        if given is not None:
            slots = self._with_attention(held, layer, slots, tokens, given)
        if held.spec.when == "chunk" or self._prompt_is_read:
            kept = self._compressor.shrink(held, layer, slots, tokens, seen, *latest)
        self._store.add_chunk(layer, held.row, positions, keys, values, given, kept)
        if held.spec.when == "chunk" or self._prompt_is_read:
            self._compressor.after_chunk(held, layer, kept is not None)
        return result

    def _with_attention(
        self, held: HeldRequest, layer: int, slots: Slots, tokens: int, given: torch.Tensor
    ) -> Slots:
        """The slots with what the chunk gave them; the store is told of those that it holds."""
        decay = (held.policy.attention or 0.0) ** tokens
        if given.shape[1] > tokens:
            self._store.add_attention(layer, held.row, decay, given)
        return replace(slots, attention=torch.add(given, slots.attention, alpha=decay))


def _with_chunk(held: Slots, positions: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> Slots:
    """What was held and the chunk's tokens after it, in the chunk's dtype; keys and values [T, H, D]."""
    new = positions.expand(keys.shape[1], -1)
    nothing = torch.zeros(new.shape, device=keys.device)
    if not held.positions.shape[1]:
        return Slots(keys.transpose(0, 1), values.transpose(0, 1), new, nothing.bool(), nothing)
    return Slots(
        torch.cat((held.keys.to(keys.dtype), keys.transpose(0, 1)), 1),
        torch.cat((held.values.to(values.dtype), values.transpose(0, 1)), 1),
        torch.cat((held.positions, new), 1),
        torch.cat((held.packed, nothing.bool()), 1),
        torch.cat((held.attention, nothing), 1),
    )


def _observed(
    held: HeldRequest, tokens: int, prompt_is_read: bool, device: torch.device
) -> torch.Tensor | None:
    """The weights of a chunk's latest queries in the attention that the policy has summed, [w <= tokens].

    A policy that looks at queries has it for decoding, where none are held.
    """
    if held.policy.attention is None or (held.policy.window and not prompt_is_read):
        return None
    weights = weights_of_queries(tokens, held.policy.attention, device)
    sample = held.policy.sample
    return weights[-sample:] * (tokens / sample) if 0 < sample < tokens else weights


def _latest(
    held: HeldRequest, layer: int, queries: torch.Tensor, positions: torch.Tensor, seen: int
) -> tuple[torch.Tensor, torch.Tensor] | tuple[None, None]:
    """The latest queries [Q, w, D] and their positions [w] that the policy looks at; queries [T, Q, D].

    They are remembered where what is left of the prompt is less than the policy looks at.
    """
    window = held.policy.window
    if not window:
        return None, None
    latest, places = queries[-window:].transpose(0, 1), positions[-window:]
    before = held.queries.pop(layer, None)
    if before is not None and len(places) < window:
        latest, places = (
            torch.cat((before[0], latest), 1)[:, -window:],
            torch.cat((before[1], places))[-window:],
        )
    if 0 < held.prompt - seen < window:
        held.queries[layer] = latest.clone(), places
    return latest, places
