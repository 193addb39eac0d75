"""Lloyd-Max levels for a unit Gaussian: the scalar quantiser of least mean squared error.

Lloyd, "Least squares quantization in PCM", IEEE Trans. IT 28(2), 1982; Max, "Quantizing for minimum distortion",
IRE Trans. IT 6(1), 1960. Published distortion of 4, 8 and 16 levels: 0.1175, 0.03454, 0.009497.
A vector is divided by its root mean square before; after a random rotation its values are close to Gaussian.
"""

from functools import lru_cache
from itertools import pairwise
from math import erf, exp, inf, pi, sqrt

import torch

_SETTLED = 1e-13  # largest move of a level after which the iteration ends; it converges geometrically


def _density(x: float) -> float:
    return exp(-x * x / 2) / sqrt(2 * pi)


def _below(x: float) -> float:
    return (1 + erf(x / sqrt(2))) / 2


def _centroids(levels: list[float]) -> tuple[list[float], list[float]]:
    """Mean and probability of the Gaussian in each level's cell, by their closed forms."""
    edges = [-inf, *((low + high) / 2 for low, high in pairwise(levels)), inf]
    cells = list(pairwise(edges))
    masses = [_below(high) - _below(low) for low, high in cells]
    means = [(_density(low) - _density(high)) / mass for (low, high), mass in zip(cells, masses, strict=True)]
    return means, masses


@lru_cache
def gaussian_levels(bits: int) -> tuple[float, ...]:
    """The 2**bits levels, ascending and symmetric about 0."""
    count = 2**bits
    levels = [3 * (2 * i + 1 - count) / count for i in range(count)]
    while True:
        means, _ = _centroids(levels)
        # Symmetry is kept by hand: rounding would let the two sides drift apart.
        means = [(mean - mirror) / 2 for mean, mirror in zip(means, reversed(means), strict=True)]
        moved = max(abs(new - old) for new, old in zip(means, levels, strict=True))
        levels = means
        if moved < _SETTLED:
            return tuple(levels)


def distortion(bits: int) -> float:
    """Mean squared error on a unit Gaussian."""
    means, masses = _centroids(list(gaussian_levels(bits)))
    return 1 - sum(mass * mean * mean for mean, mass in zip(means, masses, strict=True))


def levels(bits: int, device: torch.device) -> torch.Tensor:
    """float32 [2**bits]."""
    return torch.tensor(gaussian_levels(bits), dtype=torch.float32, device=device)


def nearest(values: torch.Tensor, bits: int) -> torch.Tensor:
    """Code of the level that is nearest; halfway between two it is the lower one."""
    table = levels(bits, values.device)
    return torch.searchsorted((table[:-1] + table[1:]) / 2, values.contiguous())
