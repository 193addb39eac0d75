# mypy: allow-untyped-defs
"""Numbers at any byte of the pool, and the place of a slot's parts in a page."""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from backends.kvcompress.store.codes import LANES
from backends.kvcompress.store.inner import inlined
from backends.kvcompress.store.simd import load_from, pointer

_WIDTHS = {np.uint16: ir.IntType(16), np.uint32: ir.IntType(32), np.float32: ir.FloatType()}


@intrinsic
def peek(typing: Any, pool: Any, at: Any, kind: Any) -> Any:
    """The number of a numpy type at a byte of the pool."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        made = context.get_value_type(kind.dtype)
        return load_from(builder, pointer(context, builder, pool, args[0], args[1], made))

    return kind.dtype(pool, types.intp, kind), emit


@intrinsic
def poke(typing: Any, pool: Any, at: Any, number: Any) -> Any:
    """Write a number at a byte of the pool."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        made = context.get_value_type(number)
        builder.store(args[2], pointer(context, builder, pool, args[0], args[1], made), align=1)
        return context.get_dummy_value()

    return types.void(pool, types.intp, number), emit


@intrinsic
def bits_of(typing: Any, number: Any) -> Any:
    """A float32 as its bits."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.IntType(32))

    return types.uint32(types.float32), emit


@intrinsic
def float_of(typing: Any, bits: Any) -> Any:
    """The float32 of these bits."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.FloatType())

    return types.float32(types.uint32), emit


@inlined
def to_bf16(number):
    """Rounded to the nearest bfloat16, ties to even: uint16."""
    bits = bits_of(number)
    if bits & np.uint32(0x7FFFFFFF) > np.uint32(0x7F800000):
        return np.uint16(0x7FC0)
    return np.uint16((bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16))


@inlined
def to_bf16_below(number):
    """The largest bfloat16 that is not above a finite number: uint16."""
    bits = bits_of(number)
    if bits >> np.uint32(31):
        bits += np.uint32(0xFFFF)
    return np.uint16(bits >> np.uint32(16))


@inlined
def of_bf16(short):
    """uint16 bits as float32."""
    return float_of(np.uint32(short) << np.uint32(16))


@inlined
def key_at(layout, page, slot):
    """First byte of a slot's key; the next code lies LANES * size bytes on. page: its first byte."""
    return page + slot // LANES * layout.keys.chunk + slot % LANES * layout.keys.size


@inlined
def value_at(layout, page, slot):
    """First byte of a slot's value, which is contiguous."""
    return page + layout.values_at + slot * layout.values.bytes


@inlined
def position_of(layout, pool, page, slot):
    """Of a slot's token in its request."""
    at = page + layout.positions_at + slot * layout.position_bytes
    if layout.position_bytes == 2:
        return np.int64(peek(pool, at, np.uint16))
    return np.int64(peek(pool, at, np.uint32))


@inlined
def set_position(layout, pool, page, slot, position):
    """Of a slot's token in its request."""
    at = page + layout.positions_at + slot * layout.position_bytes
    if layout.position_bytes == 2:
        poke(pool, at, np.uint16(position))
    else:
        poke(pool, at, np.uint32(position))


@inlined
def is_dead(layout, pool, page, slot):
    """Whether a slot of a page whose slots share scales holds nothing any more."""
    dead = 0xFFFF if layout.position_bytes == 2 else 0xFFFFFFFF
    return layout.by_tokens and position_of(layout, pool, page, slot) == dead


@inlined
def kill(layout, pool, page, slot):
    """Let it hold nothing."""
    set_position(layout, pool, page, slot, 0xFFFF if layout.position_bytes == 2 else 0xFFFFFFFF)


@inlined
def attention_of(layout, pool, page, slot):
    """What the slot was given; 0 where none is recorded."""
    if layout.has_attention:
        return peek(pool, page + layout.attention_at + 4 * slot, np.float32)
    return np.float32(0)


@inlined
def set_attention(layout, pool, page, slot, given):
    """Nothing where none is recorded."""
    if layout.has_attention:
        poke(pool, page + layout.attention_at + 4 * slot, np.float32(given))


@inlined
def copy_key(codes, source, start, target, end):
    """Bytes of a key from one place of the pool to another, both in strides."""
    stride = LANES * codes.size
    for at in range(0, codes.bytes // codes.size * stride, stride):
        if codes.size == 4:
            poke(target, end + at, peek(source, start + at, np.uint32))
        elif codes.size == 2:
            poke(target, end + at, peek(source, start + at, np.uint16))
        else:
            target[end + at] = source[start + at]


@inlined
def copy_value(codes, source, start, target, end):
    """Bytes of a value from one place to another."""
    whole = codes.bytes // 8 * 8
    for byte in range(0, whole, 8):
        poke(target, end + byte, peek(source, start + byte, np.uint64))
    for byte in range(whole, codes.bytes):
        target[end + byte] = source[start + byte]


@inlined
def gather_key(codes, pool, start, target):
    """A key as contiguous bytes, as a value lies."""
    stride = LANES * codes.size
    for code in range(codes.bytes // codes.size):
        for byte in range(codes.size):
            target[code * codes.size + byte] = pool[start + code * stride + byte]


@inlined
def scatter_key(codes, source, pool, start):
    """The inverse of `gather_key`."""
    stride = LANES * codes.size
    for code in range(codes.bytes // codes.size):
        for byte in range(codes.size):
            pool[start + code * stride + byte] = source[code * codes.size + byte]


@inlined
def write_floats(codes, vector, pool, start, step):
    """A vector [dim] as floats that begin at a byte of the pool and lie `step` floats apart; padding is 0."""
    for i in range(codes.width):
        number = vector[i] if i < codes.dim else np.float32(0)
        if codes.bits == 32:
            poke(pool, start + 4 * step * i, number)
        else:
            poke(pool, start + 2 * step * i, to_bf16(number))


@inlined
def read_floats(codes, pool, start, step, vector):
    """The inverse of `write_floats`."""
    for i in range(codes.dim):
        if codes.bits == 32:
            vector[i] = peek(pool, start + 4 * step * i, np.float32)
        else:
            vector[i] = of_bf16(peek(pool, start + 2 * step * i, np.uint16))
