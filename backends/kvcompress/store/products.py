"""The two inner products of attention, over vectors of the queries that read the same KV head."""

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from backends.kvcompress.store.layout import LANES, Layout
from backends.kvcompress.store.simd import (
    FLOAT,
    VECTOR,
    f32x8,
    load_from,
    members,
    multiply_add,
    pointer,
    spread,
    tuple_of,
)


@intrinsic
def add_products(typing: Any, layout: Any, sums: Any, keys: Any, queries: Any, at: Any, apart: Any) -> Any:
    """sums[2 * q + k % 2] += queries[at + q * apart + k * key_rows] * keys[k], for the queries q of the tuple and the
    parts k of the keys: eight slots' scores, each in two halves."""
    form = layout.value

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _, total, unpacked, array, first, stride = args
        totals = members(builder, total, sums.count)
        for part, vector in enumerate(members(builder, unpacked, keys.count)):
            for query in range(sums.count // 2):
                index = builder.add(first, builder.mul(stride, ir.Constant(stride.type, query)))
                index = builder.add(index, ir.Constant(index.type, part * form.key_rows))
                number = load_from(builder, pointer(context, builder, queries, array, index, FLOAT))
                half = 2 * query + part % 2
                totals[half] = multiply_add(builder, spread(builder, number), vector, totals[half])
        return tuple_of(context, builder, totals)

    return sums(layout, sums, keys, queries, types.intp, types.intp), emit


@intrinsic
def add_weighted(typing: Any, sums: Any, values: Any, weights: Any, at: Any, apart: Any) -> Any:
    """sums[q * n + i] += weights[at + q * apart] * values[i], for the n vectors of one slot's value."""
    per_query = values.count

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        total, unpacked, array, first, stride = args
        totals, vectors = members(builder, total, sums.count), members(builder, unpacked, per_query)
        for query in range(sums.count // per_query):
            index = builder.add(first, builder.mul(stride, ir.Constant(stride.type, query)))
            weight = spread(
                builder, load_from(builder, pointer(context, builder, weights, array, index, FLOAT))
            )
            for i, vector in enumerate(vectors):
                place = query * per_query + i
                totals[place] = multiply_add(builder, weight, vector, totals[place])
        return tuple_of(context, builder, totals)

    return sums(sums, values, weights, types.intp, types.intp), emit


def _addresses(
    context: Any, builder: Any, form: Layout, blocks: int, queries: int, array_type: Any, args: Any
) -> list[Any]:
    """Of the vectors of [queries, parts, blocks] in an array of floats."""
    array, first, stride = args
    found = []
    for query in range(queries):
        row = builder.add(first, builder.mul(stride, ir.Constant(stride.type, query)))
        for part in range(form.parts):
            for block in range(blocks):
                index = builder.add(row, ir.Constant(row.type, part * form.rows + LANES * block))
                found.append(pointer(context, builder, array_type, array, index, VECTOR))
    return found


@intrinsic(prefer_literal=True)
def load_sums(typing: Any, layout: Any, blocks: Any, queries: Any, array: Any, at: Any, apart: Any) -> Any:
    """The running sums that `add_weighted` continues: of float32 [queries, width], `apart` floats a query, from the
    column that `at` names."""
    form, per_part, count = layout.value, blocks.literal_value, queries.literal_value
    made = types.UniTuple(f32x8, form.parts * per_part * count)

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        where = _addresses(context, builder, form, per_part, count, array, args[3:])
        return tuple_of(context, builder, [load_from(builder, each) for each in where])

    return made(layout, blocks, queries, array, types.intp, types.intp), emit


@intrinsic(prefer_literal=True)
def store_sums(
    typing: Any, layout: Any, blocks: Any, queries: Any, array: Any, at: Any, apart: Any, sums: Any
) -> Any:
    """Write back what `load_sums` loaded."""
    form, per_part, count = layout.value, blocks.literal_value, queries.literal_value

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        where = _addresses(context, builder, form, per_part, count, array, args[3:6])
        for each, vector in zip(where, members(builder, args[6], sums.count), strict=True):
            builder.store(vector, each, align=1)
        return context.get_dummy_value()

    return types.void(layout, blocks, queries, array, types.intp, types.intp, sums), emit


@intrinsic
def store_scores(
    typing: Any, layout: Any, products: Any, scale: Any, zero: Any, array: Any, sums: Any, at: Any, apart: Any
) -> Any:
    """array[at + q * apart:] = the query's two halves added, times its slots' scales, plus their zeros times the sum
    of the query (array[sums + q])."""
    form = layout.value

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _, halves, scales, offsets, data, of_query, first, stride = args
        vectors = members(builder, halves, products.count)
        for query in range(products.count // 2):
            score = builder.fadd(vectors[2 * query], vectors[2 * query + 1])
            if form.key_scale == "slot":
                score = builder.fmul(score, scales)
            if form.key_scale == "slot" and form.zeros:
                index = builder.add(of_query, ir.Constant(of_query.type, query))
                total = load_from(builder, pointer(context, builder, array, data, index, FLOAT))
                score = multiply_add(builder, spread(builder, total), offsets, score)
            index = builder.add(first, builder.mul(stride, ir.Constant(stride.type, query)))
            builder.store(score, pointer(context, builder, array, data, index, VECTOR), align=1)
        return context.get_dummy_value()

    return types.void(layout, products, scale, zero, array, types.intp, types.intp, types.intp), emit
