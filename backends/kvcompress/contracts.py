"""What the parts of the engine ask of each other. Arrays are float32 on a CPU unless said otherwise.

Letters in shapes: T tokens of one forward pass (of any requests), B requests that decode, H KV heads, Q query heads
(a multiple of H: query heads h*Q/H … (h+1)*Q/H-1 read KV head h), D values of a head, n slots.

    engine    decides which tokens are computed next, and for whom
    model     computes T tokens; calls an Attention in each layer
    attention reads and appends to the store, then lets the compressor shrink what it holds
    compressor asks a policy for scores, selects, and tells the store what to keep and what to pack
    store     holds the slots of every (request, layer, KV head) in pages of one pool
"""

from dataclasses import dataclass
from typing import Protocol

import torch

from backends.kvcompress.spec import Budget, KvSpec


class PoolFull(Exception):
    """No page is free; the engine reserves before it computes, so that this is not met in service."""


class Attention(Protocol):
    """What a model calls in each layer, for the tokens of the pass."""

    def __call__(
        self, layer: int, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> torch.Tensor:
        """queries [T, Q, D], keys and values [T, H, D], positions already applied (RoPE); returns [T, Q, D]."""
        ...


class Model(Protocol):
    """A decoder over flat tokens. Only the tokens whose logits the engine wants are computed to the end."""

    def forward(
        self,
        ids: torch.Tensor,
        positions: torch.Tensor,
        attention: Attention,
        wanted: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """ids and positions [T] -> the last layer's output [T, width], or of the tokens wanted [N] alone."""
        ...

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Of what `forward` returns: [N, width] -> [N, vocabulary]."""
        ...


@dataclass(frozen=True, slots=True)
class Pass:
    """The tokens of one forward pass: first a chunk of one request's prompt (or none), then one of each that decodes.

    rows: int32 [T], of the store. positions: int64 [T], of each token in its request. chunk: how many of the first
    tokens are the chunk's. ends_prompt: whether the chunk is its prompt's last (the moment of when="prompt").
    """

    rows: torch.Tensor
    positions: torch.Tensor
    chunk: int
    ends_prompt: bool


class RequestAttention(Attention, Protocol):
    """The `Attention` that the engine gives to the model: over the store, the compressor at work in each layer."""

    def open(self, spec: KvSpec, prompt: int) -> int:
        """A row of the store for a request of so many prompt tokens; raises UsageError for an unknown policy."""
        ...

    def close(self, row: int) -> None:
        """Free the row."""
        ...

    def rebudget(self, row: int, budget: Budget) -> None:
        """Another budget for a request that has one, kept from its next token on."""
        ...

    def breadth(self, row: int) -> float | None:
        """How broad the prompt's attention is (`breadth.breadth_of`, mean over layers), as far as it was read before
        anything was evicted; None where nothing was measured."""
        ...

    def begin(self, tokens: Pass) -> None:
        """Whose tokens the next pass computes; the model then calls it once in each layer, in order."""
        ...


@dataclass(frozen=True, slots=True)
class Slots:
    """What one request holds in one layer, unpacked; heads may hold different numbers of slots.

    keys, values: [H, n, D]. positions: [H, n] int64, of the token in its request; -1 where a head has fewer than n
    (such slots are padding: their keys and values are zero). packed: [H, n] bool. attention: [H, n], what the
    slots were given so far (`KvStore.attend`), zero where nothing was recorded. The order is the store's own.
    """

    keys: torch.Tensor
    values: torch.Tensor
    positions: torch.Tensor
    packed: torch.Tensor
    attention: torch.Tensor


class KvStore(Protocol):
    """The slots of all requests. A row is one request; every slot is exact (as computed) or packed (quantised once).

    Called by one thread. Row numbers are reused after `close`.
    """

    packed: bool  # whether packed slots really take fewer bytes; the torch fallback only rounds
    page_bytes: int
    pages: int

    def open(self, spec: KvSpec) -> int:
        """A row for a request, holding nothing; its spec says how slots are packed."""
        ...

    def close(self, row: int) -> None:
        """Free everything of the row."""
        ...

    def free_pages(self) -> int:
        """Pages that nobody holds."""
        ...

    def pages_for(self, spec: KvSpec, exact: int, packed: int) -> int:
        """Most pages that one (layer, head) of a request takes for so many slots of each kind."""
        ...

    def append(
        self,
        layer: int,
        rows: torch.Tensor,
        positions: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
    ) -> None:
        """Add token t (keys, values [T, H, D]) to row rows[t] (int32 [T]) as exact slots; raises PoolFull."""
        ...

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
        """Add tokens (positions [T], keys and values [T, H, D]) to one row as exact slots, to each head those of
        which kept [H, T] is true (None: all). given [H, T]: their attention so far (None: 0). Either may have columns
        before these, which are not read. Raises PoolFull."""
        ...

    def attend(
        self, layer: int, rows: torch.Tensor, queries: torch.Tensor, decay: torch.Tensor
    ) -> torch.Tensor:
        """softmax(q·k/sqrt(D))·v of one query each over all slots of its row: queries [B, Q, D] -> [B, Q, D].

        decay [B]: where not NaN, each slot's attention becomes decay * attention + what this query gave it, summed
        over the query heads of its KV head.
        """
        ...

    def read(self, layer: int, row: int, vectors: bool = True) -> Slots:
        """Everything the row holds in this layer, unpacked to float32; without `vectors`, keys and values stay empty
        ([H, 0, D]), which costs no unpacking."""
        ...

    def add_attention(self, layer: int, row: int, decay: float, given: torch.Tensor) -> None:
        """attention = decay * attention + given [H, n], for the slots in the order of `read`; what comes after n is
        not read."""
        ...

    def keep(self, layer: int, row: int, kept: torch.Tensor) -> None:
        """Drop the slots where kept [H, n] bool (in the order of `read`) is false; pages left empty are free. What
        comes after n is not read."""
        ...

    def pack(self, layer: int, row: int, first: int, end: int) -> None:
        """Quantise the exact slots with first <= position < end. Where tokens share a scale ("channel", "kivi") only
        whole groups are packed and the rest waits as it is. Where layers share (`KvSpec.share`), the lower one of two
        waits for the upper one, which merges both before."""
        ...

    def move(self, layer: int, row: int, keys: torch.Tensor, positions: torch.Tensor) -> None:
        """Other keys [H, n, D] and positions [H, n] for the slots in the order of `read`, none of them packed: keys
        that were rotated to new positions."""
        ...

    def counts(self, layer: int, row: int) -> list[int]:
        """Live slots of each KV head."""
        ...

    def held_pages(self, row: int) -> int:
        """Pages that the row takes."""
        ...

    def held_bytes(self, row: int) -> int:
        """Everything the row takes: its pages (slack included), and its share of tables."""
        ...

    def used_bytes(self) -> int:
        """Of all rows."""
        ...


@dataclass(frozen=True, slots=True)
class LayerView:
    """What a policy sees of one request in one layer.

    slots: see `Slots`. queries: [Q, w, D], the latest w queries that were computed (RoPE applied), w <= the policy's
    window, with their positions [w]; None while decoding. seen: tokens so far, evicted ones included. budget: slots
    that may stay in a KV head, averaged over the layer's. sinks: the first positions, which stay. rope: rotates
    [.., D] to positions (angles of the model), for policies that need other positions.
    """

    slots: Slots
    queries: torch.Tensor | None
    query_positions: torch.Tensor | None
    seen: int
    budget: int
    sinks: int
    layer: int
    layers: int
    rope: "Rope"


class Rope(Protocol):
    """The rotary positions of the model."""

    def rotate(self, vectors: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """vectors [..., D] un-rotated, positions broadcast to [...]; negative positions rotate back."""
        ...


class Policy(Protocol):
    """An eviction method: which slots matter. One small file each, registered by name.

    attention: None, or the decay with which the attention that slots are given is summed for it (1: all of it, 0: of
    the last query alone). window: how many of a chunk's latest queries it looks at (0: none); where it looks at
    queries, attention is summed from the last chunk of its prompt on. sample: how many of a chunk's latest queries
    stand for all of them in the attention that is summed (0: every query counts for itself). vectors: whether it
    reads keys or values.
    """

    name: str
    attention: float | None
    window: int
    sample: int
    vectors: bool

    def score(self, view: LayerView) -> torch.Tensor:
        """[H, n], higher is kept first; what it says of padding, sinks and recent slots is not read."""
        ...
