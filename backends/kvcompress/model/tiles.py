"""The inner product behind every matrix of the model on a CPU: sixteen rows of weights times a few tokens.

Weights stay in the type they are stored in and are widened to float32 in registers, so that a matrix in bfloat16 is
read from memory at half the bytes and multiplied in float32 all the same. Registers hold all the sums of a tile, and
each weight is loaded and widened once for all its tokens. LLVM splits the vectors where the CPU's are shorter.
"""

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

LANES = 16  # rows of weights whose sums lie in one vector
_FLOAT = ir.FloatType()
_VECTOR = ir.VectorType(_FLOAT, LANES)
_INTS = ir.VectorType(ir.IntType(32), LANES)
_FUSED = ("contract",)  # lets a product and a sum become one instruction where the CPU has it


def _widened(builder: Any, where: Any, stored: str) -> Any:
    """Sixteen weights from an address as float32. bfloat16 is held as uint16, the upper half of a float32."""

    def load(element: Any) -> Any:
        return builder.load(builder.bitcast(where, ir.VectorType(element, LANES).as_pointer()), align=1)

    if stored == "uint16":
        return builder.bitcast(
            builder.shl(builder.zext(load(ir.IntType(16)), _INTS), ir.Constant(_INTS, [16] * LANES)), _VECTOR
        )
    if stored == "int16":
        return builder.fpext(load(ir.HalfType()), _VECTOR)
    if stored == "int8":
        return builder.sitofp(builder.sext(load(ir.IntType(8)), _INTS), _VECTOR)
    return load(_FLOAT)


def _spread(builder: Any, number: Any) -> Any:
    one = builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), number, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(one, ir.Constant(_VECTOR, ir.Undefined), ir.Constant(_INTS, [0] * LANES))


@intrinsic(prefer_literal=True)
def multiply_tile(
    typing: Any, panels: Any, panel: Any, scales: Any, inputs: Any, at: Any, tokens: Any, out: Any, token: Any
) -> Any:
    """out[token + t, 16 * panel + r] = scales[..] * sum over k of panels[panel, k, r] * inputs[at + k * tokens + t].

    For every row r of the panel and t < tokens (a literal). panels [P, K, 16] of uint16 (bfloat16), int16 (float16),
    int8 or float32; scales float32 [16 * P] of the rows, or None for 1; inputs float32, flat; out float32 [.., 16 P].
    """
    count = tokens.literal_value
    steps = max(1, 4 // count)  # of k at once: sums of few tokens would wait for one another

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        panels_, panel_, scales_, inputs_, at_, _, out_, token_ = args
        word = at_.type

        def whole(number: int) -> Any:
            return ir.Constant(word, number)

        def array(of: Any, value: Any) -> Any:
            return cgutils.create_struct_proxy(of)(context, builder, value)

        stack = array(panels, panels_)
        width = builder.extract_value(stack.shape, 1)
        column = builder.mul(panel_, whole(LANES))
        weights = builder.gep(stack.data, [builder.mul(column, width)])
        numbers = builder.gep(array(inputs, inputs_).data, [at_])
        sums = [
            cgutils.alloca_once_value(builder, ir.Constant(_VECTOR, [0.0] * LANES))
            for _ in range(steps * count)
        ]

        def add_products(k: Any, places: list[Any]) -> None:
            where = builder.gep(weights, [builder.mul(k, whole(LANES))])
            vector = _widened(builder, where, str(panels.dtype))
            for t, place in enumerate(places):
                index = builder.add(builder.mul(k, whole(count)), whole(t))
                number = _spread(builder, builder.load(builder.gep(numbers, [index])))
                product = builder.fmul(vector, number, flags=_FUSED)
                builder.store(builder.fadd(builder.load(place), product, flags=_FUSED), place)

        together = builder.udiv(width, whole(steps))
        with cgutils.for_range(builder, together) as loop:
            for step in range(steps):
                k = builder.add(builder.mul(loop.index, whole(steps)), whole(step))
                add_products(k, sums[step * count : (step + 1) * count])
        if steps > 1:
            start = builder.mul(together, whole(steps))
            with cgutils.for_range(builder, builder.sub(width, start)) as loop:
                add_products(builder.add(start, loop.index), sums[:count])

        scale = None
        if scales != types.none:
            where = builder.gep(array(scales, scales_).data, [column])
            scale = builder.load(builder.bitcast(where, _VECTOR.as_pointer()), align=4)
        target = array(out, out_)
        apart = builder.extract_value(target.shape, 1)
        for t in range(count):
            total = builder.load(sums[t])
            for step in range(1, steps):
                total = builder.fadd(total, builder.load(sums[step * count + t]))
            if scale is not None:
                total = builder.fmul(total, scale)
            index = builder.add(builder.mul(builder.add(token_, whole(t)), apart), column)
            where = builder.gep(target.data, [index])
            builder.store(total, builder.bitcast(where, _VECTOR.as_pointer()), align=4)
        return context.get_dummy_value()

    return types.void(panels, types.intp, scales, inputs, types.intp, tokens, out, types.intp), emit
