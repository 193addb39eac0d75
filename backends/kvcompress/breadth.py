"""How concentrated a prompt's attention is: how many of its entries hold most of it.

Where a few entries hold nearly all, the others are dropped at little loss; where many share it, each that is dropped
is missed. Their number hardly grows with the tokens read, so a prompt's beginning tells it. That few entries hold
most of the attention is what eviction lives on (H2O, Zhang et al. 2023, arXiv 2306.14048).
"""

import torch

MASS = 0.9  # of the attention that the entries in question hold together
SAMPLED = 8  # of a chunk's latest queries, which cost a thirtieth of all and say the same to a few per cent


def broad_entries(queries: torch.Tensor, keys: torch.Tensor) -> float:
    """Mean over KV heads of the fewest entries that hold MASS of the attention.

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
    return float(((largest < MASS).sum(-1) + 1).float().mean())
