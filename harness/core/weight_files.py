"""How much memory a model's weights are, told from its files without loading them."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import orjson

from harness.core.geometry import BYTES_PER_VALUE

# What each figure rests on, in a record's `summary.memory.weights_source`.
SAID = "engine"  # the engine says it
RECKONED = "precision"  # the values in the files, in the precision that the engine was told to keep them in
STORED = "files"  # the size of the files that the engine reads


@dataclass(frozen=True, slots=True)
class WeightSize:
    """bytes of all weights. source: one of SAID, RECKONED, STORED."""

    bytes: int
    source: str


def stored_size(weights: Path, *patterns: str) -> WeightSize | None:
    """Size of the file `weights`, or of those files of the folder that fit a pattern; None where none does."""
    files = [weights]
    if not weights.is_file():
        files = [file for pattern in patterns for file in weights.glob(pattern)]
    return WeightSize(sum(file.stat().st_size for file in files), STORED) if files else None


def size_as(folder: Path, dtype: str | None) -> WeightSize | None:
    """What the tensors of a folder's safetensors take with every value in `dtype`.

    None where the folder has no safetensors that can be read, or `dtype` has no one size: then nobody should guess.
    """
    if dtype not in BYTES_PER_VALUE:
        return None
    files = sorted(folder.glob("*.safetensors"))
    try:
        values = sum(prod(tensor["shape"]) for file in files for tensor in _tensors(file))
    except (OSError, ValueError, OverflowError, KeyError, TypeError, AttributeError, struct.error):
        return None
    return WeightSize(round(values * BYTES_PER_VALUE[dtype]), RECKONED) if values else None


def _tensors(file: Path) -> Iterator[Any]:
    """The header of a safetensors file: 8 bytes with its length, then JSON."""
    with file.open("rb") as opened:
        (length,) = struct.unpack("<Q", opened.read(8))
        header = orjson.loads(opened.read(length))
    return (entry for name, entry in header.items() if name != "__metadata__")
