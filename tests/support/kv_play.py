"""Plays a request through `PagedAttention` with random queries, keys and values in the model's place."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from backends.kvcompress.attention import PagedAttention
from backends.kvcompress.contracts import KvStore, Pass


@dataclass
class Stream:
    """What a model would compute of one request. queries [L, T, Q, D], keys and values [L, T, H, D]."""

    queries: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor


def stream(
    tokens: int, layers: int = 2, query_heads: int = 4, heads: int = 2, size: int = 8, seed: int = 0
) -> Stream:
    generator = torch.Generator().manual_seed(seed)
    shapes = (query_heads, heads, heads)
    return Stream(*(torch.randn(layers, tokens, n, size, generator=generator) for n in shapes))


class TurningPairs:
    """Rotary positions: coordinate i turns with coordinate i of the second half, at 1 / 10 ** (4 i / D)."""

    def rotate(self, vectors: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        half = vectors.shape[-1] // 2
        pace = 10.0 ** -(torch.arange(half) * 2 / half)
        turn = torch.polar(torch.ones(()), positions[..., None].float() * pace)
        turned = torch.complex(vectors[..., :half], vectors[..., half:]) * turn
        return torch.cat((turned.real, turned.imag), -1)


def attention_over(
    store: KvStore, layers: int = 2, heads: int = 2, retrieval: torch.Tensor | None = None
) -> PagedAttention:
    """retrieval [L, H] bool: the heads that retrieve, where the model's were measured."""
    measured = None if retrieval is None else lambda: retrieval
    return PagedAttention(store, layers, heads, TurningPairs(), measured)


def run_pass(
    attention: PagedAttention,
    chunk: tuple[int, Stream, int, int, bool] | None,
    decoding: Sequence[tuple[int, Stream, int]] = (),
) -> torch.Tensor:
    """One pass: chunk is (row, stream, first token, tokens, whether the prompt ends); decoding (row, stream, token).
    Returns [L, T, Q, D]."""
    parts = [] if chunk is None else [(chunk[0], chunk[1], t) for t in range(chunk[2], chunk[2] + chunk[3])]
    tokens = [*parts, *decoding]
    rows = torch.tensor([row for row, _, _ in tokens], dtype=torch.int32)
    positions = torch.tensor([token for _, _, token in tokens])
    attention.begin(Pass(rows, positions, len(parts), chunk is not None and chunk[4]))
    layers = len(tokens[0][1].keys)
    return torch.stack(
        [
            attention(
                layer,
                torch.stack([s.queries[layer, t] for _, s, t in tokens]),
                torch.stack([s.keys[layer, t] for _, s, t in tokens]),
                torch.stack([s.values[layer, t] for _, s, t in tokens]),
            )
            for layer in range(layers)
        ]
    )


def play(
    attention: PagedAttention,
    row: int,
    given: Stream,
    prompt: int,
    chunk: int,
    after_pass: Callable[[int], None] = lambda seen: None,
) -> torch.Tensor:
    """Read the prompt in chunks, then decode the rest of the stream; returns [L, T, Q, D].

    after_pass is called with the tokens seen after every pass.
    """
    results = []
    for first in range(0, prompt, chunk):
        count = min(chunk, prompt - first)
        results.append(run_pass(attention, (row, given, first, count, first + count == prompt)))
        after_pass(first + count)
    for token in range(prompt, given.keys.shape[1]):
        results.append(run_pass(attention, None, [(row, given, token)]))
        after_pass(token + 1)
    return torch.cat(results, 1)


def dense(given: Stream, layer: int) -> torch.Tensor:
    """The probabilities of causal attention over everything, [Q, T, T]."""
    queries, keys = given.queries[layer], given.keys[layer]
    shared = queries.shape[1] // keys.shape[1]
    scores = torch.einsum("tqd,sqd->qts", queries, keys.repeat_interleave(shared, 1)) / math.sqrt(
        keys.shape[-1]
    )
    later = torch.ones(len(keys), len(keys), dtype=torch.bool).triu(1)
    return torch.softmax(scores.masked_fill(later, -torch.inf), -1)


def dense_results(given: Stream) -> torch.Tensor:
    """What attention over everything gives, [L, T, Q, D]."""
    shared = given.queries.shape[2] // given.keys.shape[2]
    return torch.stack(
        [
            torch.einsum("qts,sqd->tqd", dense(given, layer), values.repeat_interleave(shared, 1))
            for layer, values in enumerate(given.values)
        ]
    )
