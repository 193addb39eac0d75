"""How much memory a model's weights take as they are held."""

from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import torch


def bytes_held(weights: Any) -> int:
    """Bytes of every tensor and array in a tree of dataclasses and tuples; what is held once is counted once."""
    found: dict[int, int] = {}
    _collect(weights, found)
    return sum(found.values())


def _collect(part: Any, found: dict[int, int]) -> None:
    if isinstance(part, torch.Tensor):
        storage = part.untyped_storage()
        found[storage.data_ptr()] = storage.nbytes()
    elif isinstance(part, np.ndarray):
        found[part.ctypes.data] = part.nbytes
    elif is_dataclass(part):
        for field in fields(part):
            _collect(getattr(part, field.name), found)
    elif isinstance(part, tuple):
        for member in part:
            _collect(member, found)
