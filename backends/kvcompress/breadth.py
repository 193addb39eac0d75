"""How broad a prompt's attention is: how many of its entries hold most of it, for its length.

Where few entries hold nearly all, the others are dropped at little loss (H2O, Zhang et al. 2023, arXiv 2306.14048,
lives on that); where many share it, each that is dropped is missed. Their number grows with about the square root of
the tokens read, so that over the root a prompt's beginning tells what the whole will have.
"""

import torch

MASS = 0.9  # of the attention that the entries in question hold together
SAMPLED = 8  # of a chunk's latest queries
EVERY = 4  # layers, of which one is looked at: four times as cheap, and the mean hardly differs


def looks_at(layer: int) -> bool:
    """Whether the layer is one of those whose attention stands for all."""
    return layer % EVERY == EVERY // 2


def breadth_of(queries: torch.Tensor, keys: torch.Tensor) -> float:
    """The fewest entries that hold MASS of the attention, mean over KV heads, over the root of the tokens.

    queries: [t, Q, D] of the last t of m tokens, of which the last SAMPLED are looked at. keys: [H, m, D], of every
    token so far. A KV head's attention is the mean over its query heads and the queries.
    """
    (_, query_heads, size), (heads, tokens, _) = queries.shape, keys.shape
    latest = queries[-SAMPLED:].to(keys.dtype)
    count = len(latest)
    folded = (
        latest.view(count, heads, query_heads // heads, size).permute(1, 2, 0, 3).reshape(heads, -1, size)
    )
    scores = (folded @ keys.transpose(1, 2) * size**-0.5).view(heads, -1, count, tokens)
    later = torch.ones(count, tokens, dtype=torch.bool, device=keys.device).triu_(tokens - count + 1)
    given = torch.softmax(scores.masked_fill_(later, -torch.inf).float(), -1).mean((1, 2))
    largest = given.sort(-1, descending=True).values.cumsum(-1)
    return float(((largest < MASS).sum(-1) + 1).float().mean()) / tokens**0.5
