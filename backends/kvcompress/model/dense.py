"""Causal attention over everything, keys and values kept whole: what the paged store is compared with."""

from collections.abc import Sequence

import torch
from torch.nn.functional import scaled_dot_product_attention


class DenseAttention:
    """Fulfils `contracts.Attention` for requests whose tokens come in order, each in one run of the pass.

    Buffers for `capacity` tokens of `requests` are allocated at once; bytes are not counted.
    """

    def __init__(
        self, layers: int, kv_heads: int, head_dim: int, capacity: int, requests: int = 1,
        dtype: torch.dtype = torch.float32, device: str = "cpu",
    ) -> None:  # fmt: skip
        shape = (requests, layers, 2, kv_heads, capacity, head_dim)
        self._held = torch.empty(shape, dtype=dtype, device=device)
        self._seen = [0] * requests
        self._runs: list[tuple[int, int]] = []

    def expect(self, runs: Sequence[tuple[int, int]]) -> None:
        """Say of the next pass how many tokens of which request come one after the other: (request, tokens)."""
        self._runs = list(runs)

    def __call__(
        self, layer: int, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> torch.Tensor:
        """See `contracts.Attention`."""
        attended = torch.empty_like(queries, memory_format=torch.contiguous_format)
        start = 0
        for request, tokens in self._runs:
            part = slice(start, start + tokens)
            attended[part] = self._attend(layer, request, queries[part], keys[part], values[part])
            start += tokens
            if layer == self._held.shape[1] - 1:
                self._seen[request] += tokens
        return attended

    def _attend(
        self, layer: int, request: int, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> torch.Tensor:
        tokens, seen = queries.shape[0], self._seen[request]
        end = seen + tokens
        held = self._held[request, layer]
        held[0, :, seen:end] = keys.transpose(0, 1)
        held[1, :, seen:end] = values.transpose(0, 1)
        all_keys, all_values = held[0, None, :, :end], held[1, None, :, :end]
        if tokens == 1:  # the query heads of a KV head become its queries, so that each key is read once
            grouped = queries.view(1, keys.shape[1], -1, queries.shape[2])
            return scaled_dot_product_attention(grouped, all_keys, all_values).view(queries.shape)
        mask = None if seen == 0 else _causal(tokens, end, queries.device)
        attended = scaled_dot_product_attention(
            queries.transpose(0, 1)[None], all_keys, all_values, mask, is_causal=mask is None, enable_gqa=True
        )
        return attended[0].transpose(0, 1)


def _causal(tokens: int, end: int, device: torch.device) -> torch.Tensor:
    """[tokens, end] bool: the last `tokens` of `end` positions see what is not later."""
    return torch.ones(tokens, end, dtype=torch.bool, device=device).tril(end - tokens)
