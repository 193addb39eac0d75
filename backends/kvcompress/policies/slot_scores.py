"""What several policies compute of a layer's slots."""

import torch

from backends.kvcompress.contracts import LayerView

_PADDING_LAST = 1 << 40


def window_attention(view: LayerView) -> torch.Tensor:
    """Probabilities of the latest queries over the slots that they see, averaged over queries and over the query
    heads of a KV head: [H, n]. One KV head at a time, so that no more than Q / H * w * n of them are held at once.
    """
    slots, queries, places = view.slots, view.queries, view.query_positions
    assert queries is not None and places is not None
    (heads, count), (query_heads, _, size) = slots.positions.shape, queries.shape
    shared = query_heads // heads
    result = torch.empty(heads, count, device=queries.device)
    for head in range(heads):
        asked = queries[head * shared : (head + 1) * shared]
        scores = asked @ (slots.keys[head] * size**-0.5).T
        positions = slots.positions[head]
        hidden = (positions[None] > places[:, None]) | (positions < 0)[None]
        scores = scores.masked_fill_(hidden, -torch.inf)
        result[head] = torch.softmax(scores, -1, dtype=torch.float32).mean((0, 1))
    return result


def by_position(positions: torch.Tensor) -> torch.Tensor:
    """Indices that put each head's slots, [H, n], in the order of their positions, padding last."""
    return positions.masked_fill(positions < 0, _PADDING_LAST).argsort(1)


def newest_first(positions: torch.Tensor) -> torch.Tensor:
    """[H, n] in (0, 1], 1 for the latest position."""
    return (positions + 1).float() / (positions.max() + 1)
