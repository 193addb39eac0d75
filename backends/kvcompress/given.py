"""What a block of queries gives each slot: a sum of their probabilities, compiled on a CPU, where torch takes twice
as long for so few of them."""

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numba
import torch

from backends.kvcompress.compiled_cache import use_cache_folder


def add_given(given: torch.Tensor, probabilities: torch.Tensor, weights: torch.Tensor) -> None:
    """given [H, >= m] += of a block's probabilities [H, Q / H, t, m] those of the last w queries times weights [w],
    summed over queries and query heads; float32, the first two contiguous."""
    if given.device.type == "cpu":
        _adder()(given.numpy(), probabilities.numpy(), weights.numpy())
    else:
        by_torch(given, probabilities, weights)


def by_torch(given: torch.Tensor, probabilities: torch.Tensor, weights: torch.Tensor) -> None:
    """The same, on any device."""
    heads, shared, count, end = probabilities.shape
    latest = probabilities.view(heads * shared, count, end)[:, count - len(weights) :]
    row = weights.to(probabilities.dtype).expand(heads * shared, 1, -1)
    given[:, :end] += torch.bmm(row, latest).view(heads, shared, end).sum(1)


@lru_cache
def _adder() -> Callable[..., Any]:
    use_cache_folder(Path(__file__))

    @numba.njit(cache=True)
    def add(given, probabilities, weights):  # type: ignore[no-untyped-def]
        heads, shared, count, end = probabilities.shape
        first = count - len(weights)
        for head in range(heads):
            for member in range(shared):
                for query in range(len(weights)):
                    weight, row = weights[query], probabilities[head, member, first + query]
                    for slot in range(end):
                        given[head, slot] += weight * row[slot]

    return add
