"""Root-mean-square norms (Zhang and Sennrich 2019), compiled on a CPU: PyTorch's takes several times as long."""

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numba
import numpy as np
import torch
from torch.nn.functional import rms_norm

from backends.kvcompress.compiled_cache import use_cache_folder


def normed(values: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """values [..., N] over the root of their mean square (plus eps), times weight [N]; contiguous."""
    if values.device.type != "cpu":
        return rms_norm(values, weight.shape, weight, eps)
    read = values.contiguous()
    out = torch.empty_like(read)
    size = weight.shape[0]
    _normed()(read.view(-1, size).numpy(), weight.numpy(), np.float32(eps), out.view(-1, size).numpy())
    return out


@lru_cache
def _normed() -> Callable[..., Any]:
    use_cache_folder(Path(__file__))

    # Sums may be taken in any order, eight and more at a time.
    @numba.njit(cache=True, fastmath={"reassoc", "contract"})
    def rows(values, weight, eps, out):  # type: ignore[no-untyped-def]
        size = values.shape[1]
        for row in range(len(values)):
            squares = np.float32(0)
            for i in range(size):
                squares += values[row, i] * values[row, i]
            factor = np.float32(1) / np.sqrt(squares / np.float32(size) + eps)
            for i in range(size):
                out[row, i] = values[row, i] * factor * weight[i]

    return rows
