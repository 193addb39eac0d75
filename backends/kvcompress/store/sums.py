# mypy: allow-untyped-defs
"""Values of a list of pages, weighted and summed."""

import numpy as np

from backends.kvcompress.store.codecs import unpack_values
from backends.kvcompress.store.codes import LANES
from backends.kvcompress.store.inner import inlined
from backends.kvcompress.store.memory import of_bf16, peek
from backends.kvcompress.store.pages import VALUE_SCALE
from backends.kvcompress.store.products import add_weighted, load_sums, store_sums
from backends.kvcompress.store.scales import block_at
from backends.kvcompress.store.simd import fma, lane, load, load_bf16, mul, splat, store


@inlined
def _add_slots(layout, group, pool, page, first, end, scratch, weights, apart, sums, width):
    """Add values of slots first to end of the page at byte `page`, times scratch[weights + query * apart + slot]."""
    for query in range(0, group, layout.queries):
        at = weights + query * apart
        for column in range(0, layout.values.rows, LANES * layout.blocks):
            into = sums + query * width + column
            totals = load_sums(layout, layout.blocks, layout.queries, scratch, into, width)
            for slot in range(first, end):
                value = page + layout.values_at + slot * layout.values.bytes
                unpacked = unpack_values(layout, layout.blocks, pool, value, column)
                totals = add_weighted(layout, totals, unpacked, column, scratch, at + slot, apart)
            store_sums(layout, layout.blocks, layout.queries, scratch, into, width, totals)


@inlined
def _scale_weights(layout, group, pool, entry, page, count, scratch, weights, apart, scaled, offsets):
    """scratch[scaled:] [group, kinds, slots] = weights * scales; offsets [group, kinds] += weights * zeros. A kind is
    one of the scales that each slot has."""
    scale, zero = splat(of_bf16(entry[VALUE_SCALE] >> 16)), splat(of_bf16(entry[VALUE_SCALE] & 0xFFFF))
    for query in range(group):
        for kind in range(layout.weight_groups):
            into = scaled + (query * layout.weight_groups + kind) * layout.slots
            total = splat(np.float32(0))
            for slot in range(0, count, LANES):
                if not layout.by_tensor:
                    at = page + layout.value_scales_at + 2 * (kind * layout.slots + slot)
                    scale = load_bf16(pool, at)
                    if layout.zeros:
                        zero = load_bf16(pool, at + 2 * layout.value_groups * layout.slots)
                given = load(scratch, weights + query * apart + slot)
                store(scratch, into + slot, mul(given, scale))
                if layout.zeros:
                    total = fma(given, zero, total)
            for i in range(LANES):
                scratch[offsets + query * layout.weight_groups + kind] += lane(total, i)


@inlined
def _add_block(layout, group, pool, page, first, end, scratch, weights, apart, part, sums, width):
    """Add slots first to end, whose values share the scales of one block."""
    for i in range(group * width):
        scratch[part + i] = 0
    _add_slots(layout, group, pool, page, first, end, scratch, weights, apart, part, width)
    at = block_at(layout, pool, page, first, 1)
    for query in range(group):
        weight = np.float32(0)
        for slot in range(first, end):
            weight += scratch[weights + query * apart + slot]
        for i in range(layout.dim):
            value = scratch[part + query * width + i] * of_bf16(peek(pool, at + 2 * i, np.uint16))
            if layout.zeros:
                value += weight * of_bf16(peek(pool, at + 2 * (layout.dim + i), np.uint16))
            scratch[sums + query * width + i] += value


@inlined
def add_page(
    layout, group, pool, entry, page, count, scratch, weights, apart, scaled, offsets, part, sums, width
):
    """Add the weighted values of the first `count` slots of the page at byte `page` to scratch[sums:] [group, width];
    weights are [group, apart].

    scaled, offsets, part: places in scratch for what `_scale_weights` and `_add_block` need.
    """
    if layout.channel_values:
        first = 0
        for slot in range(LANES, count + LANES, LANES):
            ends = slot >= count
            if ends or block_at(layout, pool, page, slot, 1) != block_at(layout, pool, page, first, 1):
                _add_block(layout, group, pool, page, first, slot, scratch, weights, apart, part, sums, width)
                first = slot
    elif layout.scaled_weights:
        stride = layout.weight_groups * layout.slots
        _scale_weights(layout, group, pool, entry, page, count, scratch, weights, apart, scaled, offsets)
        _add_slots(layout, group, pool, page, 0, count, scratch, scaled, stride, sums, width)
    else:
        _add_slots(layout, group, pool, page, 0, count, scratch, weights, apart, sums, width)
