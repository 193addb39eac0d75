# mypy: allow-untyped-defs
"""One vector quantised to the bytes of a slot, and read back: what `quant.formats` says, in compiled code."""

import numpy as np

from backends.kvcompress.quant.codebook import gaussian_levels
from backends.kvcompress.store.codes import TABLES
from backends.kvcompress.store.inner import inlined
from backends.kvcompress.store.memory import bits_of, of_bf16, to_bf16, to_bf16_below

_LEVELS = {bits: np.array(gaussian_levels(bits), dtype=np.float32) for bits in (2, 3, 4)}
_EDGES = np.zeros((5, 15), dtype=np.float32)
for _bits, _ascending in _LEVELS.items():
    _EDGES[_bits, : len(_ascending) - 1] = (_ascending[:-1] + _ascending[1:]) / np.float32(2)


def _value_of_byte(table: str, byte: int) -> float:
    """What a code stands for before its scale; see `_code`."""
    if table == "int8":
        return byte - 256 if byte > 127 else byte
    if table == "fp8":
        exponent, mantissa = byte >> 3 & 15, byte & 7
        size = mantissa * 2.0**-9 if exponent == 0 else (8 + mantissa) * 2.0 ** (exponent - 10)
        return -size if byte > 127 else size
    if table == "even":
        return byte
    levels: list[float] = _LEVELS[int(table[-1])].tolist()
    if table == "codebook4":  # sign and magnitude, see `codecs`
        return -levels[8 + byte % 8] if byte & 8 else levels[8 + byte % 8]
    return levels[byte % len(levels)]


_VALUES = np.array(
    [[_value_of_byte(table, byte) for byte in range(256)] for table in TABLES], dtype=np.float32
)


@inlined
def to_e4m3(number):
    """The nearest 8-bit float, ties to even, at most 448: its byte."""
    sign = np.int64(bits_of(number) >> np.uint32(31)) << 7
    size = np.minimum(np.abs(number), np.float32(448))
    exponent = np.maximum(np.int64(bits_of(size) >> np.uint32(23)) - 127, np.int64(-6))
    steps = np.int64(np.rint(np.float64(size) * 2.0 ** (3 - exponent)))  # 8..16, less for subnormals
    return sign | (((exponent + 6) << 3) + steps)


@inlined
def forget(measured):
    """Begin to measure: float32 [5] of lowest, highest, largest, sum of squares, count."""
    measured[0], measured[1] = np.inf, -np.inf
    measured[2] = measured[3] = measured[4] = 0


@inlined
def measure(number, measured):
    """Take part in a scale."""
    measured[0] = min(measured[0], number)
    measured[1] = max(measured[1], number)
    measured[2] = max(measured[2], np.abs(number))
    measured[3] += number * number
    measured[4] += 1


@inlined
def scale_of(codes, measured):
    """bfloat16 scale and zero (bits) for what was measured."""
    zero = np.uint16(0)
    if codes.codebook:
        scale = to_bf16(np.float32(np.sqrt(measured[3] / measured[4])))
    elif codes.zeros:
        zero = to_bf16_below(measured[0])
        scale = to_bf16((measured[1] - of_bf16(zero)) / np.float32(2**codes.bits - 1))
    elif codes.float8:
        scale = to_bf16(measured[2] / np.float32(448))
    else:
        scale = to_bf16(measured[2] / np.float32(127))
    return scale, zero


@inlined
def _code(codes, number):
    """Of a value that its scale and zero were taken from."""
    if codes.codebook:
        code = 0
        for i in range(2**codes.bits - 1):
            code += number > _EDGES[codes.bits, i]
        if codes.bits == 4:  # sign and magnitude, see `codecs`
            return code - 8 if code >= 8 else 8 | (7 - code)
        return code
    if codes.float8:
        return to_e4m3(number)
    if codes.bits == 8:
        return np.int64(min(max(np.rint(number), np.float32(-127)), np.float32(127))) & 255
    return np.int64(min(max(np.rint(number), np.float32(0)), np.float32(2**codes.bits - 1)))


@inlined
def encode(codes, vector, steps, offsets, target):
    """The bytes of a vector (a key's before they are spread) into target: uint8 [bytes].

    vector, steps, offsets: float32 [dim].
    """
    for i in range(codes.bytes):
        target[i] = 0
    for i in range(codes.dim):
        code = np.int64(0)
        if steps[i] > 0:
            code = _code(codes, (vector[i] - offsets[i]) / steps[i])
        elif codes.codebook:
            code = _code(codes, np.float32(0))
        if codes.bits == 3:
            quarter, eighth = codes.width // 4, codes.width // 8
            target[i % quarter] |= (code & 3) << (i // quarter * 2)
            target[quarter + i % eighth] |= (code >> 2) << (i // eighth)
        else:
            target[i % codes.rows] |= code << (i // codes.rows * codes.bits)


@inlined
def decode(codes, source, at, steps, offsets, vector):
    """A slot's value, whose bytes begin at `at`, into vector: float32 [dim]."""
    values = _VALUES[codes.table]
    quarter, eighth, mask = codes.width // 4, codes.width // 8, 2**codes.bits - 1
    for i in range(codes.dim):
        if codes.bits == 3:
            low = source[at + i % quarter] >> (i // quarter * 2) & 3
            code = low | (source[at + quarter + i % eighth] >> (i // eighth) & 1) << 2
        else:
            code = source[at + i % codes.rows] >> (i // codes.rows * codes.bits) & mask
        vector[i] = values[code] * steps[i] + offsets[i]
