"""A randomised Hadamard rotation of a head: y = H (s * x) / sqrt(D), with random signs s.

It spreads outliers over all values of a vector and changes no dot product, so queries are either rotated as well or
the keys are rotated back. As in QuaRot (Ashkboos et al., arXiv:2404.00456); the signs are fixed, the same for every
layer and head.
"""

from functools import lru_cache
from random import Random

import torch

_SEED = 20261130


@lru_cache
def _signs(head_dim: int) -> tuple[float, ...]:
    random = Random(_SEED)  # random() is the one stream that Python promises to keep
    return tuple(1.0 if random.random() < 0.5 else -1.0 for _ in range(head_dim))


def signs(head_dim: int, device: torch.device | None = None) -> torch.Tensor:
    """float32 [D] of 1 and -1."""
    return torch.tensor(_signs(head_dim), dtype=torch.float32, device=device)


def hadamard(vectors: torch.Tensor) -> torch.Tensor:
    """H x / sqrt(D) of float32 [..., D] in Sylvester's order, by the fast transform; its own inverse."""
    size = vectors.shape[-1]
    result, half = vectors, 1
    while half < size:
        pairs = result.reshape(*vectors.shape[:-1], size // (2 * half), 2, half)
        first, second = pairs[..., 0, :], pairs[..., 1, :]
        result = torch.stack([first + second, first - second], dim=-2).reshape(vectors.shape)
        half *= 2
    return result * size**-0.5


def rotate(vectors: torch.Tensor) -> torch.Tensor:
    """vectors [..., D], D a power of two."""
    return hadamard(vectors * signs(vectors.shape[-1], vectors.device))


def rotate_back(vectors: torch.Tensor) -> torch.Tensor:
    """The inverse of `rotate`."""
    return hadamard(vectors) * signs(vectors.shape[-1], vectors.device)
