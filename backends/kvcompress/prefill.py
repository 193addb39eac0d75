"""Attention of a chunk of one request's prompt over what the request holds and over the chunk itself.

On a CPU a block of queries at a time, the query heads of a KV head folded into the rows of one matrix product: as
fast as torch's fused attention there, with the probabilities at hand for policies that sum them. On a GPU the fused
one.
"""

import torch
from torch.nn import functional

from backends.kvcompress.given import add_given

_ROWS = 96  # rows of a product, query heads folded in: the scores of a block stay in the cache


def attend_chunk(
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    missing: torch.Tensor | None,
    weights: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """softmax(q·k/sqrt(D))·v, causal: queries [t, Q, D] are those of the last t of m keys and values [H, m, D].

    missing: [H, m] bool, slots that are padding. weights: [w], of the last w queries, or None. Returns [t, Q, D], and
    with weights the attention that the slots were given, [H, m]: those queries' probabilities times their weights,
    summed over the query heads of a KV head.
    """
    if queries.device.type == "cpu":
        return _blocked(
            queries, keys, values, missing, weights, max(8, _ROWS * keys.shape[0] // queries.shape[1])
        )
    if weights is None:
        return _fused(queries, keys, values, missing), None
    return _blocked(queries, keys, values, missing, weights, 512)


def _blocked(
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    missing: torch.Tensor | None,
    weights: torch.Tensor | None,
    block: int,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    (tokens, query_heads, size), (heads, slots, _) = queries.shape, keys.shape
    shared = query_heads // heads
    before = slots - tokens
    folded = (queries * size**-0.5).view(tokens, heads, shared, size).permute(1, 2, 0, 3)
    result = torch.empty_like(folded, memory_format=torch.contiguous_format)
    given = None if weights is None else torch.zeros(heads, slots, device=keys.device)
    later = torch.ones(block, block, dtype=torch.bool, device=keys.device).triu_(1)
    for first in range(0, tokens, block):
        count = min(block, tokens - first)
        end = before + first + count
        rows = folded[:, :, first : first + count].reshape(heads, shared * count, size)
        scores = torch.bmm(rows, keys[:, :end].transpose(1, 2))
        scores.view(heads, shared, count, end)[..., end - count :].masked_fill_(
            later[:count, :count], -torch.inf
        )
        if missing is not None:
            scores.masked_fill_(missing[:, None, :end], -torch.inf)
        probabilities = torch.softmax(scores, -1)
        result[:, :, first : first + count] = torch.bmm(probabilities, values[:, :end]).view(
            heads, shared, count, size
        )
        if weights is not None and given is not None:
            counted = first + count - max(first, tokens - len(weights))
            if counted > 0:
                part = weights[len(weights) - tokens + first + count - counted :][:counted]
                add_given(given, probabilities.view(heads, shared, count, end), part)
    return result.permute(2, 0, 1, 3).reshape(tokens, query_heads, size), given


def _fused(
    queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, missing: torch.Tensor | None
) -> torch.Tensor:
    (tokens, query_heads, _), (heads, slots, _) = queries.shape, keys.shape
    mask = None
    if slots > tokens:
        mask = torch.ones(tokens, slots, dtype=torch.bool, device=keys.device).tril_(slots - tokens)
        if missing is not None:
            mask = (mask & ~missing[:, None]).repeat_interleave(query_heads // heads, 0)
    result = functional.scaled_dot_product_attention(
        queries.transpose(0, 1)[None],
        keys[None],
        values[None],
        attn_mask=mask,
        is_causal=mask is None,
        enable_gqa=True,
    )
    return result[0].transpose(0, 1)


def weights_of_queries(tokens: int, decay: float, device: torch.device) -> torch.Tensor:
    """[tokens]: decay ** (how many queries came after), what is too small to matter set to 0."""
    weights = torch.full((tokens,), decay, device=device) ** torch.arange(tokens - 1, -1, -1, device=device)
    return weights.masked_fill_(weights < 1e-3, 0)
