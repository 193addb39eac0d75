"""The two inner products of attention, over vectors of the queries that read the same KV head."""

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from backends.kvcompress.store.codes import LANES
from backends.kvcompress.store.layout import Layout
from backends.kvcompress.store.simd import (
    FLOAT,
    SHORTS,
    VECTOR,
    f32x8,
    from_bf16,
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
def add_weighted(
    typing: Any, layout: Any, sums: Any, values: Any, column: Any, weights: Any, at: Any, apart: Any
) -> Any:
    """sums[q * n + i] += weights[at + q * apart + g * slots] * values[i], for the n vectors of one slot's value from
    `column` on (see `unpack_values`), g being which of the slot's scales the vector's dims share."""
    form, per_query = layout.value, values.count
    blocks = per_query // form.values.parts

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _, total, unpacked, begin, array, first, stride = args
        totals, vectors = members(builder, total, sums.count), members(builder, unpacked, per_query)

        def weight(query: int, vector: int) -> Any:
            index = builder.add(first, builder.mul(stride, ir.Constant(stride.type, query)))
            if form.value_groups > 1:
                dim = vector // blocks * form.values.rows + vector % blocks * LANES
                index = builder.add(index, _scale_index(builder, form, begin, dim, form.slots))
            return spread(
                builder, load_from(builder, pointer(context, builder, weights, array, index, FLOAT))
            )

        for query in range(sums.count // per_query):
            of_query = None if form.value_groups > 1 else weight(query, 0)
            for i, vector in enumerate(vectors):
                place = query * per_query + i
                chosen = weight(query, i) if of_query is None else of_query
                totals[place] = multiply_add(builder, chosen, vector, totals[place])
        return tuple_of(context, builder, totals)

    return sums(layout, sums, values, types.intp, weights, types.intp, types.intp), emit


def _scale_index(builder: Any, form: Layout, begin: Any, dim: int, apart: int) -> Any:
    """apart * (which of a slot's scales dim `begin + dim` uses); padding uses the last."""
    kind = begin.type
    group = builder.udiv(builder.add(begin, ir.Constant(kind, dim)), ir.Constant(kind, form.group_dims))
    last = ir.Constant(kind, form.value_groups - 1)
    group = builder.select(builder.icmp_unsigned("<", group, last), group, last)
    return builder.mul(group, ir.Constant(kind, apart))


@intrinsic
def load_key_scales(typing: Any, layout: Any, pool: Any, at: Any, row: Any) -> Any:
    """What the vectors of `unpack_keys` at a row are multiplied with, for eight slots: from their first scales, which
    begin at a byte of the pool."""
    form = layout.value

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        found = []
        for part in range(form.key_parts):
            index = _scale_index(builder, form, args[3], part * form.key_rows, 2 * form.slots)
            where = pointer(context, builder, pool, args[1], builder.add(args[2], index), SHORTS)
            found.append(from_bf16(builder, load_from(builder, where)))
        return tuple_of(context, builder, found)

    return types.UniTuple(f32x8, form.key_parts)(layout, pool, types.intp, types.intp), emit


@intrinsic
def scale_keys(typing: Any, keys: Any, scales: Any, offsets: Any) -> Any:
    """keys * scales + offsets, vector by vector."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        each = zip(*(members(builder, value, keys.count) for value in args), strict=True)
        return tuple_of(context, builder, [multiply_add(builder, *three) for three in each])

    return keys(keys, scales, offsets), emit


def _addresses(
    context: Any, builder: Any, form: Layout, blocks: int, queries: int, array_type: Any, args: Any
) -> list[Any]:
    """Of the vectors of [queries, parts, blocks] in an array of floats."""
    array, first, stride = args
    found = []
    for query in range(queries):
        row = builder.add(first, builder.mul(stride, ir.Constant(stride.type, query)))
        for part in range(form.values.parts):
            for block in range(blocks):
                index = builder.add(row, ir.Constant(row.type, part * form.values.rows + LANES * block))
                found.append(pointer(context, builder, array_type, array, index, VECTOR))
    return found


@intrinsic(prefer_literal=True)
def load_sums(typing: Any, layout: Any, blocks: Any, queries: Any, array: Any, at: Any, apart: Any) -> Any:
    """The running sums that `add_weighted` continues: of float32 [queries, width], `apart` floats a query, from the
    column that `at` names."""
    form, per_part, count = layout.value, blocks.literal_value, queries.literal_value
    made = types.UniTuple(f32x8, form.values.parts * per_part * count)

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
    """array[at + q * apart:] = the query's two halves added, times the slots' scales, plus their zeros times the sum
    of the query (array[sums + q]); of channels, whose scales the query has taken in, the sum is of its products with
    their zeros."""
    form = layout.value

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _, halves, scales, offsets, data, of_query, first, stride = args
        vectors = members(builder, halves, products.count)
        for query in range(products.count // 2):
            score = builder.fadd(vectors[2 * query], vectors[2 * query + 1])
            if form.key_groups == 1 or form.by_tensor:
                score = builder.fmul(score, scales)
            if form.zeros and form.key_groups <= 1:
                index = builder.add(of_query, ir.Constant(of_query.type, query))
                total = load_from(builder, pointer(context, builder, array, data, index, FLOAT))
                if form.by_tokens:
                    score = builder.fadd(score, spread(builder, total))
                else:
                    score = multiply_add(builder, spread(builder, total), offsets, score)
            index = builder.add(first, builder.mul(stride, ir.Constant(stride.type, query)))
            builder.store(score, pointer(context, builder, array, data, index, VECTOR), align=1)
        return context.get_dummy_value()

    return types.void(layout, products, scale, zero, array, types.intp, types.intp, types.intp), emit
