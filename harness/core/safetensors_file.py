"""Writing weights in bfloat16 as one safetensors file, a tensor at a time.

The format: 8 bytes (little-endian) with the length of a JSON header, the header with each tensor's dtype, shape and
place, then the tensors' bytes one after the other.
"""

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import orjson

_ALIGNMENT = 8  # of the header, so that the values behind it can be mapped


@dataclass(frozen=True, slots=True)
class LazyTensor:
    """A tensor whose float32 values are computed when they are written, so that one is in memory at a time."""

    shape: tuple[int, ...]
    values: Callable[[], npt.NDArray[np.float32]]


def write_bfloat16(path: Path, tensors: Mapping[str, LazyTensor]) -> None:
    """Write `tensors` to `path`, each value rounded to the nearest bfloat16."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}  # what transformers asks for
    end = 0
    for name, tensor in tensors.items():
        start, end = end, end + 2 * int(np.prod(tensor.shape))
        header[name] = {"dtype": "BF16", "shape": tensor.shape, "data_offsets": (start, end)}
    words = orjson.dumps(header)
    words += b" " * (-len(words) % _ALIGNMENT)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(words)) + words)
        for name, tensor in tensors.items():
            values = tensor.values()
            if values.shape != tensor.shape:
                raise ValueError(f"{name} has shape {values.shape}, not {tensor.shape}")
            file.write(to_bfloat16(values).tobytes())


def to_bfloat16(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """The upper halves of finite float32 values, rounded to nearest, ties to even; same shape, little-endian."""
    bits = np.ascontiguousarray(values, dtype="<f4").view("<u4")
    return ((bits + (0x7FFF + ((bits >> 16) & 1))) >> 16).astype("<u2")
