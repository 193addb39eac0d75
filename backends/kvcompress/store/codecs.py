"""Codes to floats, eight at once: one short function for each format, which writes the instructions.

Each gets `where(row)`, the address of eight neighbouring codes (bytes, or wider ones) of a row, and the first row; it
returns one vector for each part of the byte (see `layout`), before any scale.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import binding, ir
from numba import types
from numba.extending import intrinsic

from backends.kvcompress.quant.codebook import gaussian_levels
from backends.kvcompress.store.codes import LANES, Codes
from backends.kvcompress.store.simd import (
    INTS,
    SHORTS,
    VECTOR,
    constant,
    f32x8,
    from_bf16,
    load_from,
    pointer,
    tuple_of,
)

_BYTES = ir.VectorType(ir.IntType(8), LANES)
_HALVES = ir.VectorType(ir.HalfType(), LANES)
_HAS_PERMUTE = binding.get_host_cpu_features().get("avx2", False)
Where = Callable[[Any, int], Any]  # (type to point at, rows beyond the first) -> address


def _ints(builder: Any, where: Where, rows: int = 0) -> Any:
    return builder.zext(load_from(builder, where(_BYTES, rows)), INTS)


def _shifted(builder: Any, codes: Any, by: int) -> Any:
    return builder.lshr(codes, constant(by, INTS)) if by else codes


def _masked(builder: Any, codes: Any, mask: int) -> Any:
    return builder.and_(codes, constant(mask, INTS))


def _floats(builder: Any, codes: list[Any]) -> list[Any]:
    return [builder.sitofp(code, VECTOR) for code in codes]


def _f32(builder: Any, form: Codes, where: Where) -> list[Any]:
    return [load_from(builder, where(VECTOR, 0))]


def _bf16(builder: Any, form: Codes, where: Where) -> list[Any]:
    return [from_bf16(builder, load_from(builder, where(SHORTS, 0)))]


def _int8(builder: Any, form: Codes, where: Where) -> list[Any]:
    return _floats(builder, [builder.sext(load_from(builder, where(_BYTES, 0)), INTS)])


def _fp8(builder: Any, form: Codes, where: Where) -> list[Any]:
    """Shifted by one, an e4m3 is a half whose exponent counts from 15 instead of 7: 2**8 too small."""
    wide = builder.zext(load_from(builder, where(_BYTES, 0)), SHORTS)
    sign = builder.shl(builder.and_(wide, constant(0x80, SHORTS)), constant(8, SHORTS))
    rest = builder.shl(builder.and_(wide, constant(0x7F, SHORTS)), constant(7, SHORTS))
    half = builder.bitcast(builder.or_(sign, rest), _HALVES)
    return [builder.fmul(builder.fpext(half, VECTOR), constant(256.0))]


def _pieces(builder: Any, form: Codes, where: Where) -> list[Any]:
    """Codes of 4 or 2 bits, not masked: what lies above them stays."""
    codes = _ints(builder, where)
    return [_shifted(builder, codes, form.bits * part) for part in range(form.parts)]


def _planes(builder: Any, form: Codes, where: Where) -> list[Any]:
    """3-bit codes: part k of 8 takes its low bits from the plane of 2, its high bit from the plane of 1."""
    low = [_ints(builder, where), _ints(builder, where, form.width // 8)]
    high = _ints(builder, where, form.width // 4)
    codes = []
    for part in range(8):
        two = _masked(builder, _shifted(builder, low[part % 2], part // 2 * 2), 3)
        moved = builder.shl(high, constant(2 - part, INTS)) if part < 2 else _shifted(builder, high, part - 2)
        codes.append(builder.or_(two, _masked(builder, moved, 4)))
    return codes


def _even(builder: Any, form: Codes, where: Where) -> list[Any]:
    if form.bits == 3:
        return _floats(builder, _planes(builder, form, where))
    mask = 2**form.bits - 1
    return _floats(builder, [_masked(builder, code, mask) for code in _pieces(builder, form, where)])


def _looked_up(builder: Any, table: list[float], codes: Any) -> Any:
    """One of eight floats in each lane, by the low 3 bits of its code."""
    values = ir.Constant(VECTOR, table)
    if _HAS_PERMUTE:
        name = "llvm.x86.avx2.permps"
        kind = ir.FunctionType(VECTOR, [VECTOR, INTS])
        function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
        return builder.call(function, [values, codes])
    result, indices = ir.Constant(VECTOR, ir.Undefined), _masked(builder, codes, 7)
    for number in range(LANES):
        at = ir.Constant(ir.IntType(32), number)
        value = builder.extract_element(values, builder.extract_element(indices, at))
        result = builder.insert_element(result, value, at)
    return result


def _codebook(builder: Any, form: Codes, where: Where) -> list[Any]:
    levels = list(gaussian_levels(form.bits))
    if form.bits == 3:
        return [_looked_up(builder, levels, code) for code in _planes(builder, form, where)]
    codes = _pieces(builder, form, where)
    if form.bits == 2:
        return [_looked_up(builder, levels * 2, code) for code in codes]
    signed = []
    for code in codes:  # the fourth bit is the sign, since the levels are symmetric
        magnitude = builder.bitcast(_looked_up(builder, levels[8:], code), INTS)
        sign = _masked(builder, builder.shl(code, constant(28, INTS)), -(2**31))
        signed.append(builder.bitcast(builder.xor(magnitude, sign), VECTOR))
    return signed


_CODECS: dict[str, Callable[[Any, Codes, Where], list[Any]]] = {
    "f32": _f32, "bf16": _bf16, "int8": _int8, "fp8": _fp8, "int4": _even, "int3": _even, "int2": _even,
    "codebook4": _codebook, "codebook3": _codebook, "codebook2": _codebook,
}  # fmt: skip


def _unpacked(
    context: Any, builder: Any, form: Codes, pool_type: Any, pool: Any, first: Any, row_bytes: int
) -> list[Any]:
    """The vectors of the row at byte `first` of the pool; rows lie `row_bytes` apart."""

    def where(kind: Any, rows: int) -> Any:
        at = builder.add(first, ir.Constant(first.type, rows * row_bytes))
        return pointer(context, builder, pool_type, pool, at, kind)

    return _CODECS[form.codec](builder, form, where)


def _offset(builder: Any, base: Any, index: Any, size: int, more: int = 0) -> Any:
    scaled = builder.mul(index, ir.Constant(index.type, size))
    return builder.add(builder.add(base, scaled), ir.Constant(base.type, more))


@intrinsic
def unpack_keys(typing: Any, layout: Any, pool: Any, chunk: Any, row: Any) -> Any:
    """Keys of the eight slots whose chunk begins at a byte of the pool: vector k of `key_parts` is dim
    row + k * key_rows."""
    of_layout, form = layout.value, layout.value.keys
    row_bytes = LANES * form.size

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        made = []
        for step in range(of_layout.key_parts // form.parts):
            first = _offset(builder, args[2], args[3], row_bytes, step * of_layout.key_rows * row_bytes)
            made += _unpacked(context, builder, form, pool, args[1], first, row_bytes)
        return tuple_of(context, builder, made)

    return types.UniTuple(f32x8, of_layout.key_parts)(layout, pool, types.intp, types.intp), emit


@intrinsic(prefer_literal=True)
def unpack_values(typing: Any, layout: Any, count: Any, pool: Any, value: Any, column: Any) -> Any:
    """`count` (literal) vectors of each part of the value that begins at a byte of the pool: vector
    part * count + i is dims part * rows + column + 8 * i and its seven neighbours."""
    form, blocks = layout.value.values, count.literal_value
    size = form.size

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        of_block = []
        for block in range(blocks):
            first = _offset(builder, args[3], args[4], size, block * LANES * size)
            of_block.append(_unpacked(context, builder, form, pool, args[2], first, size))
        vectors = [of_block[block][part] for part in range(form.parts) for block in range(blocks)]
        return tuple_of(context, builder, vectors)

    return types.UniTuple(f32x8, form.parts * blocks)(layout, count, pool, types.intp, types.intp), emit
