"""Registers of eight floats for numba: loops over them become vector instructions whatever LLVM's vectoriser thinks.

A `f32x8` is an ordinary value of a compiled function. Several are a tuple, whose length is a literal.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, register_model

from backends.kvcompress.store.codes import LANES

FLOAT = ir.FloatType()
VECTOR = ir.VectorType(FLOAT, LANES)
INTS = ir.VectorType(ir.IntType(32), LANES)
SHORTS = ir.VectorType(ir.IntType(16), LANES)
FUSED = ("contract",)  # lets a product and a sum become one instruction where the CPU has it


class F32x8(types.Type):
    """Eight floats."""

    def __init__(self) -> None:
        super().__init__(name="f32x8")


@register_model(F32x8)
class _Model(models.PrimitiveModel):
    def __init__(self, manager: Any, fe_type: Any) -> None:
        super().__init__(manager, fe_type, VECTOR)


f32x8 = F32x8()


def constant(value: float, typ: ir.VectorType = VECTOR) -> ir.Constant:
    """The same number in every lane."""
    return ir.Constant(typ, [value] * LANES)


def spread(builder: Any, scalar: Any) -> Any:
    """A number of the program in every lane."""
    one = builder.insert_element(ir.Constant(VECTOR, ir.Undefined), scalar, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(one, ir.Constant(VECTOR, ir.Undefined), constant(0, INTS))


def multiply_add(builder: Any, a: Any, b: Any, c: Any) -> Any:
    """a * b + c."""
    return builder.fadd(builder.fmul(a, b, flags=FUSED), c, flags=FUSED)


def pointer(context: Any, builder: Any, array_type: Any, array: Any, index: Any, to: Any) -> Any:
    """Of an array's element, as a pointer to something else."""
    data = cgutils.create_struct_proxy(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [index]), ir.PointerType(to))


def from_bf16(builder: Any, shorts: Any) -> Any:
    """bfloat16 is the upper half of a float."""
    return builder.bitcast(builder.shl(builder.zext(shorts, INTS), constant(16, INTS)), VECTOR)


def load_from(builder: Any, where: Any) -> Any:
    """Of any address, aligned or not."""
    return builder.load(where, align=1)


def tuple_of(context: Any, builder: Any, vectors: list[Any]) -> Any:
    """A value of type UniTuple(f32x8, n)."""
    return context.make_tuple(builder, types.UniTuple(f32x8, len(vectors)), vectors)


def members(builder: Any, value: Any, count: int) -> list[Any]:
    """The vectors of a tuple."""
    return [builder.extract_value(value, i) for i in range(count)]


@intrinsic(prefer_literal=True)
def zeros(typing: Any, count: Any) -> Any:
    """A tuple of `count` (literal) vectors of 0."""
    made = types.UniTuple(f32x8, count.literal_value)

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return tuple_of(context, builder, [constant(0.0)] * count.literal_value)

    return made(count), emit


@intrinsic
def load(typing: Any, array: Any, at: Any) -> Any:
    """Eight floats of a float32 array from index `at`."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return load_from(builder, pointer(context, builder, array, args[0], args[1], VECTOR))

    return f32x8(array, types.intp), emit


@intrinsic
def store(typing: Any, array: Any, at: Any, vector: Any) -> Any:
    """Write eight floats to a float32 array from index `at`."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store(args[2], pointer(context, builder, array, args[0], args[1], VECTOR), align=1)
        return context.get_dummy_value()

    return types.void(array, types.intp, f32x8), emit


@intrinsic
def splat(typing: Any, number: Any) -> Any:
    """One float32 in every lane."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return spread(builder, args[0])

    return f32x8(types.float32), emit


@intrinsic(prefer_literal=True)
def pick(typing: Any, vectors: Any, index: Any) -> Any:
    """The vector with a literal index of a tuple."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.extract_value(args[0], index.literal_value)

    return f32x8(vectors, index), emit


def _lanewise(emit_one: Callable[..., Any], count: int) -> Any:
    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return emit_one(builder, *args)

    return f32x8(*[f32x8] * count), emit


@intrinsic
def mul(typing: Any, a: Any, b: Any) -> Any:
    """a * b."""
    return _lanewise(lambda builder, x, y: builder.fmul(x, y, flags=FUSED), 2)


@intrinsic
def add(typing: Any, a: Any, b: Any) -> Any:
    """a + b."""
    return _lanewise(lambda builder, x, y: builder.fadd(x, y, flags=FUSED), 2)


@intrinsic
def sub(typing: Any, a: Any, b: Any) -> Any:
    """a - b."""
    return _lanewise(lambda builder, x, y: builder.fsub(x, y, flags=FUSED), 2)


@intrinsic
def fma(typing: Any, a: Any, b: Any, c: Any) -> Any:
    """a * b + c."""
    return _lanewise(multiply_add, 3)


def _larger(builder: Any, x: Any, y: Any) -> Any:
    return builder.select(builder.fcmp_ordered(">", x, y), x, y)


@intrinsic
def largest(typing: Any, a: Any, b: Any) -> Any:
    """The larger of each lane."""
    return _lanewise(_larger, 2)


def _exp(builder: Any, x: Any) -> Any:
    """2**n times a Taylor polynomial of degree 6 in the rest, |rest| <= 1/2: within 2e-7, never below 1e-38."""
    scaled = _larger(builder, builder.fmul(x, constant(1.4426950408889634)), constant(-126.0))
    magic = constant(12582912.0)  # 1.5 * 2**23: a sum with it rounds to a whole number, found in its low bits
    shifted = builder.fadd(scaled, magic)
    rest = builder.fsub(scaled, builder.fsub(shifted, magic))
    series = [0.00015403530393381608, 0.0013333558146428443, 0.009618129107628477, 0.05550410866482158,
              0.2402265069591007, 0.6931471805599453, 1.0]  # fmt: skip
    result = constant(series[0])
    for coefficient in series[1:]:
        result = multiply_add(builder, result, rest, constant(coefficient))
    exponent = builder.shl(builder.bitcast(shifted, INTS), constant(23, INTS))
    return builder.bitcast(builder.add(builder.bitcast(result, INTS), exponent), VECTOR)


@intrinsic
def exp(typing: Any, a: Any) -> Any:
    """e**a for a <= 0."""
    return _lanewise(_exp, 1)


@intrinsic
def lane(typing: Any, vector: Any, index: Any) -> Any:
    """One number of a vector."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.extract_element(args[0], builder.trunc(args[1], ir.IntType(32)))

    return types.float32(f32x8, types.intp), emit


@intrinsic
def load_bf16(typing: Any, pool: Any, at: Any) -> Any:
    """Eight bfloat16 that begin at a byte of the pool."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return from_bf16(
            builder, load_from(builder, pointer(context, builder, pool, args[0], args[1], SHORTS))
        )

    return f32x8(pool, types.intp), emit


@intrinsic
def prefetch(typing: Any, pool: Any, at: Any) -> Any:
    """Ask for the cache line at a byte of the pool; nothing happens where there is none.

    To the second level: a core has few places for lines on their way to the first, and waits for them.
    """

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        byte = ir.PointerType(ir.IntType(8))
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        ask = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
        where = pointer(context, builder, signature.args[0], args[0], args[1], ir.IntType(8))
        # To read, to be kept from the second level on, data.
        builder.call(ask, [where, *(ir.Constant(number, n) for n in (0, 2, 1))])
        return context.get_dummy_value()

    return types.void(pool, types.intp), emit
