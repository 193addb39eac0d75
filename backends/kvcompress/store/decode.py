"""Attention of one query token over the slots of its row: the kernel that every decode step runs in every layer."""

import numpy as np
from numba import njit

from backends.kvcompress.store.codecs import load_bf16, unpack_keys, unpack_values
from backends.kvcompress.store.layout import LANES
from backends.kvcompress.store.memory import attention_of, set_attention
from backends.kvcompress.store.pages import COUNT, EXACT, FIRST, PACKED
from backends.kvcompress.store.products import add_products, add_weighted, load_sums, store_scores, store_sums
from backends.kvcompress.store.simd import (
    add,
    exp,
    fma,
    lane,
    largest,
    load,
    mul,
    splat,
    store,
    sub,
    zeros,
)
from backends.kvcompress.store.turning import turn, turn_back

_NONE = np.float32(-3e38)


@njit
def _padded(count):  # type: ignore[no-untyped-def]
    return (count + LANES - 1) // LANES * LANES


@njit
def _score_page(layout, group, pool, page, chunks, scratch, queries, apart, sums, scores, length):  # type: ignore[no-untyped-def]
    """Scores of the first chunks of the page at byte `page`, to scratch[scores + query * length:]."""
    scale = zero = splat(np.float32(0))
    for chunk in range(chunks):
        if layout.scaled_keys:
            at = page + layout.key_scales_at + 2 * LANES * chunk
            scale = load_bf16(pool, at)
            if layout.zeros:
                zero = load_bf16(pool, at + 2 * layout.slots)
        for first in range(0, group, layout.queries):
            products = zeros(layout.score_sums)
            for row in range(layout.key_rows):
                unpacked = unpack_keys(layout, pool, page + chunk * layout.key_chunk, row)
                products = add_products(
                    layout, products, unpacked, scratch, queries + first * apart + row, apart
                )
            at = scores + chunk * LANES + first * length
            store_scores(layout, products, scale, zero, scratch, sums + first, at, length)


@njit
def _score(layout, group, pool, following, entry, scratch, queries, apart, sums, scores, length):  # type: ignore[no-untyped-def]
    """Scores of a whole list of pages; the places that fill up the last eight cannot be chosen."""
    page, left, at = entry[FIRST], entry[COUNT], scores
    while left > 0:
        count = min(left, layout.slots)
        chunks = (count + LANES - 1) // LANES
        _score_page(
            layout, group, pool, page * layout.page_bytes, chunks, scratch, queries, apart, sums, at, length
        )
        at += chunks * LANES
        left -= count
        page = following[page]
    for query in range(group):
        for unused in range(scores + entry[COUNT], scores + _padded(entry[COUNT])):
            scratch[unused + query * length] = _NONE


@njit
def _softmax(scratch, at, length):  # type: ignore[no-untyped-def]
    """In place; length is a multiple of eight."""
    most = load(scratch, at)
    for i in range(at + LANES, at + length, LANES):
        most = largest(most, load(scratch, i))
    peak = lane(most, 0)
    for i in range(1, LANES):
        peak = max(peak, lane(most, i))
    shift, total = splat(peak), splat(np.float32(0))
    for i in range(at, at + length, LANES):
        powers = exp(sub(load(scratch, i), shift))
        store(scratch, i, powers)
        total = add(total, powers)
    whole = np.float32(0)
    for i in range(LANES):
        whole += lane(total, i)
    inverse = splat(np.float32(1) / whole)
    for i in range(at, at + length, LANES):
        store(scratch, i, mul(load(scratch, i), inverse))


@njit
def _weigh_page(layout, group, pool, page, count, scratch, weights, apart, sums, width):  # type: ignore[no-untyped-def]
    """Add the values of the first `count` slots, times scratch[weights + query * apart + slot], to the sums."""
    for first in range(0, group, layout.queries):
        at = weights + first * apart
        for column in range(0, layout.rows, LANES * layout.blocks):
            into = sums + first * width + column
            totals = load_sums(layout, layout.blocks, layout.queries, scratch, into, width)
            for slot in range(count):
                value = page + layout.values_at + slot * layout.value_bytes
                unpacked = unpack_values(layout, layout.blocks, pool, value, column)
                totals = add_weighted(totals, unpacked, scratch, at + slot, apart)
            store_sums(layout, layout.blocks, layout.queries, scratch, into, width, totals)


@njit
def _scale_weights(layout, group, pool, page, count, scratch, weights, apart, scaled, offsets):  # type: ignore[no-untyped-def]
    """scratch[scaled + query * slots:] = weights * scales of the slots; offsets[query] += weights * their zeros."""
    for query in range(group):
        total = splat(np.float32(0))
        for slot in range(0, count, LANES):
            at = page + layout.value_scales_at + 2 * slot
            given = load(scratch, weights + query * apart + slot)
            store(scratch, scaled + query * layout.slots + slot, mul(given, load_bf16(pool, at)))
            if layout.zeros:
                total = fma(given, load_bf16(pool, at + 2 * layout.slots), total)
        for i in range(LANES):
            scratch[offsets + query] += lane(total, i)


@njit
def _weigh(layout, group, pool, following, entry, scratch, weights, length, scaled, offsets, sums, width):  # type: ignore[no-untyped-def]
    """The weighted sum of the values of a whole list of pages, added to the sums."""
    page, left, at = entry[FIRST], entry[COUNT], weights
    while left > 0:
        count = min(left, layout.slots)
        start = page * layout.page_bytes
        if layout.scaled_values:
            _scale_weights(layout, group, pool, start, count, scratch, at, length, scaled, offsets)
            _weigh_page(layout, group, pool, start, count, scratch, scaled, layout.slots, sums, width)
        else:
            _weigh_page(layout, group, pool, start, count, scratch, at, length, sums, width)
        at += count
        left -= count
        page = following[page]


@njit
def _record(layout, group, pool, following, entry, scratch, weights, length, decay):  # type: ignore[no-untyped-def]
    """attention = decay * attention + what the queries of the group gave each slot."""
    page, left, at = entry[FIRST], entry[COUNT], weights
    while left > 0:
        count = min(left, layout.slots)
        start = page * layout.page_bytes
        for slot in range(count):
            given = np.float32(0)
            for query in range(group):
                given += scratch[at + slot + query * length]
            set_attention(layout, pool, start, slot, decay * attention_of(layout, pool, start, slot) + given)
        at += count
        left -= count
        page = following[page]


@njit
def attend_head(config, pool, following, lists, queries, signs, decay, out, scratch):  # type: ignore[no-untyped-def]
    """out = softmax(q k / sqrt(D)) v for the queries [group, D] of one KV head over its lists [2, 3]; see `pages`.

    scratch: float32 [config.scratch + group * slots rounded up to eights]. Returns whether it was large enough.
    """
    group, dim, width = config.group, config.dim, config.width
    plain, turned = 0, group * width
    sums, turned_sums = 2 * group * width, 3 * group * width
    totals = 4 * group * width
    offsets, scaled = totals + group, totals + 2 * group
    scores = config.scratch
    exact_length = _padded(lists[EXACT, COUNT])
    length = exact_length + _padded(lists[PACKED, COUNT])
    if length == 0:
        for query in range(group):
            for i in range(dim):
                out[query, i] = 0
        return True
    if scores + group * length > len(scratch):
        return False
    for i in range(scores):
        scratch[i] = 0
    scale = np.float32(1 / np.sqrt(dim))
    for query in range(group):
        for i in range(dim):
            number = queries[query, i] * scale
            scratch[plain + query * width + i] = number
            scratch[turned + query * width + i] = number
        if config.rotate:
            turn(scratch, turned + query * width, signs)
        for i in range(dim):
            scratch[totals + query] += scratch[turned + query * width + i]
    exact, packed = lists[EXACT], lists[PACKED]
    at = scores + exact_length
    _score(config.exact, group, pool, following, exact, scratch, plain, width, totals, scores, length)
    if config.has_packed:
        _score(config.packed, group, pool, following, packed, scratch, turned, width, totals, at, length)
    for query in range(group):
        _softmax(scratch, scores + query * length, length)
    if not np.isnan(decay):
        _record(config.exact, group, pool, following, exact, scratch, scores, length, decay)
        if config.has_packed:
            _record(config.packed, group, pool, following, packed, scratch, at, length, decay)
    _weigh(config.exact, group, pool, following, exact, scratch, scores, length, scaled, offsets, sums, width)
    if config.has_packed:
        _weigh(
            config.packed,
            group,
            pool,
            following,
            packed,
            scratch,
            at,
            length,
            scaled,
            offsets,
            turned_sums,
            width,
        )
    for query in range(group):
        of_packed = turned_sums + query * width
        for i in range(dim):
            scratch[of_packed + i] += scratch[offsets + query]
        if config.rotate:
            turn_back(scratch, of_packed, signs)
        for i in range(dim):
            out[query, i] = scratch[sums + query * width + i] + scratch[of_packed + i]
    return True
