# mypy: allow-untyped-defs
"""The rotation of `quant.rotation` in compiled code, in place, on one vector of an array of floats."""

import numpy as np

from backends.kvcompress.store.inner import inlined


@inlined
def _hadamard(vector, at, size):
    half = 1
    while half < size:
        for start in range(at, at + size, 2 * half):
            for i in range(start, start + half):
                first, second = vector[i], vector[i + half]
                vector[i] = first + second
                vector[i + half] = first - second
        half *= 2
    scale = np.float32(1 / np.sqrt(size))
    for i in range(at, at + size):
        vector[i] *= scale


@inlined
def turn(vector, at, signs):
    """vector[at: at + D] as the rotation makes it; signs float32 [D], D a power of two."""
    for i in range(len(signs)):
        vector[at + i] *= signs[i]
    _hadamard(vector, at, len(signs))


@inlined
def turn_back(vector, at, signs):
    """The inverse."""
    _hadamard(vector, at, len(signs))
    for i in range(len(signs)):
        vector[at + i] *= signs[i]
