"""Matrices on a CPU, laid out and multiplied so that every weight is read once, in order, in its stored type.

A matrix [out, in] is held as panels of sixteen rows, [out / 16, in, 16], and multiplied by tiles of a few tokens
(`tiles.multiply_tile`). The same weights serve one token and a chunk of a prompt.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import llvmlite.binding
import numba
import numpy as np
import numpy.typing as npt
import torch
from torch.nn.functional import pad

from backends.kvcompress.compiled_cache import use_cache_folder
from backends.kvcompress.model import tiles
from backends.kvcompress.model.tiles import LANES, multiply_tile


def _tile() -> int:
    """Tokens whose sums fill the registers: 32 of sixteen floats, or 16 of eight, which spill beyond six tokens."""
    features = numba.config.CPU_FEATURES or llvmlite.binding.get_host_cpu_features().flatten()
    return 16 if "+avx512f" in features else 6


TILE = _tile()
# The last tile of a pass is filled up with zeros to one of these.
_TAILS = (*(size for size in (1, 2, 4, 8) if size < TILE), TILE)
# Multiplications, about a millisecond of one thread's, below which another thread that has to wake is no help: on two
# cores of a virtual machine two threads took twice as long as one for a step of a model of 135M parameters.
_WORTH_SHARING = 1 << 25
_READING = 5  # multiplications that fit into the time in which a weight is read from memory
# numba computes with neither on a CPU: their bits are handed over.
_BITS = {torch.bfloat16: torch.uint16, torch.float16: torch.int16}


@dataclass(frozen=True, slots=True)
class Panels:
    """stack [P, in, 16] of uint16 (bfloat16), int16 (float16), float32 or int8. scales float32 [16 * P], of the rows.

    rows: of the matrix; the last panel is filled up with zeros.
    """

    stack: npt.NDArray[Any]
    scales: npt.NDArray[np.float32] | None
    rows: int


def panels_of(weight: torch.Tensor, scales: torch.Tensor | None = None) -> Panels:
    """Lay out weight [out, in], its values as they are; scales [out] go with int8."""
    rows, columns = weight.shape
    filled = pad(weight, (0, 0, 0, -rows % LANES))
    stack = filled.view(-1, LANES, columns).transpose(1, 2).contiguous()
    stack = stack.view(_BITS.get(stack.dtype, stack.dtype))
    return Panels(stack.numpy(), None if scales is None else pad(scales, (0, -rows % LANES)).numpy(), rows)


def multiply(inputs: torch.Tensor, matrix: Panels, threads: int) -> torch.Tensor:
    """inputs float32 [T, in] times the matrix transposed: [T, out], summed in float32.

    By so many threads where there is enough to do for them; each value is the same either way.
    """
    tokens = inputs.shape[0]
    whole, left = divmod(tokens, TILE)
    tail = next(size for size in _TAILS if size >= left) if left else 0
    out = torch.empty(whole * TILE + tail, LANES * len(matrix.stack))
    chosen = threads_for(tokens, matrix.stack.size, threads)
    _product(chosen)(matrix.stack, matrix.scales, inputs.contiguous().numpy(), whole, tail, out.numpy())
    return out[:tokens] if matrix.rows == out.shape[1] else out[:tokens, : matrix.rows].contiguous()


def threads_for(tokens: int, size: int, threads: int) -> int:
    """All of the threads, or one where a product of so many tokens by `size` weights is too small to share."""
    return threads if size * max(tokens, _READING) >= _WORTH_SHARING else 1


_SOURCES = (Path(__file__), Path(tiles.__file__))

# What calls another compiled function finds it by its module: numba's cache never finds again what closes over one.
use_cache_folder(*_SOURCES)


@numba.njit(cache=True)
def _some(first, end, stack, scales, inputs, whole, tail, out):  # type: ignore[no-untyped-def]
    """Panels first to end of the product; inputs as `_tiled` has them."""
    width = stack.shape[1]
    token, at = whole * TILE, whole * TILE * width
    for panel in range(first, end):
        for tile in range(whole):
            multiply_tile(stack, panel, scales, inputs, tile * TILE * width, TILE, out, tile * TILE)
        if tail == 1:
            multiply_tile(stack, panel, scales, inputs, at, 1, out, token)
        elif tail == 2:
            multiply_tile(stack, panel, scales, inputs, at, 2, out, token)
        elif tail == 4:
            multiply_tile(stack, panel, scales, inputs, at, 4, out, token)
        elif tail == 8:
            multiply_tile(stack, panel, scales, inputs, at, 8, out, token)
        elif tail == TILE:
            multiply_tile(stack, panel, scales, inputs, at, TILE, out, token)


@numba.njit(cache=True)
def _tiled(inputs, whole, tail):  # type: ignore[no-untyped-def]
    """Flat: of each tile all tokens' first values, then their second ones, and so on."""
    tokens, width = inputs.shape
    laid = np.empty((whole * TILE + tail) * width, np.float32)
    for tile in range(whole):
        rows = inputs[tile * TILE : (tile + 1) * TILE]
        for k in range(width):
            at = (tile * width + k) * TILE
            for token in range(TILE):
                laid[at + token] = rows[token, k]
    first = whole * TILE
    laid[first * width :] = 0
    for token in range(first, tokens):
        for k in range(width):
            laid[first * width + k * tail + token - first] = inputs[token, k]
    return laid


@numba.njit(cache=True)
def _alone(stack, scales, inputs, whole, tail, out):  # type: ignore[no-untyped-def]
    _some(0, len(stack), stack, scales, _tiled(inputs, whole, tail), whole, tail, out)


@lru_cache
def _product(threads: int) -> Callable[..., None]:
    """Compiled on the first call, or read from the harness's cache folder."""
    use_cache_folder(*_SOURCES)

    @numba.njit(cache=True, parallel=True)
    def shared(stack, scales, inputs, whole, tail, out):  # type: ignore[no-untyped-def]
        count, laid = len(stack), _tiled(inputs, whole, tail)
        for part in numba.prange(threads):
            first, end = count * part // threads, count * (part + 1) // threads
            _some(first, end, stack, scales, laid, whole, tail, out)

    if threads == 1:
        return _alone
    # OpenMP's threads spin between products, against PyTorch's own and whoever else needs the cores; numba's plain
    # ones wait. They serve one calling thread, which the engine is.
    numba.config.THREADING_LAYER = "workqueue"
    return shared
