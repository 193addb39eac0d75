# mypy: allow-untyped-defs
"""Attention of one query token over the slots of its row: the kernel that every decode step runs in every layer."""

import numpy as np

from backends.kvcompress.store.codes import LANES
from backends.kvcompress.store.inner import inlined
from backends.kvcompress.store.memory import attention_of, set_attention
from backends.kvcompress.store.pages import COUNT, EXACT, FIRST, PACKED
from backends.kvcompress.store.scores import padded, score
from backends.kvcompress.store.simd import add, exp, lane, largest, load, mul, splat, store, sub
from backends.kvcompress.store.sums import add_values
from backends.kvcompress.store.turning import turn, turn_back


@inlined
def _softmax(scratch, at, length):
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


@inlined
def _record(layout, group, pool, following, entry, scratch, weights, length, decay):
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


@inlined
def scratch_needed(config, lists):
    """Floats of scratch memory for one KV head with these lists."""
    return config.scratch + config.group * (padded(lists[EXACT, COUNT]) + padded(lists[PACKED, COUNT]))


@inlined
def attend_head(config, pool, following, lists, queries, signs, decay, out, scratch):
    """out = softmax(q k / sqrt(D)) v for the queries [group, D] of one KV head over its lists (of `pages`).

    scratch: float32, as many as `scratch_needed` says: six times [group, width] (the queries plain and turned, sums
    of exact and of packed values, queries with the channels' scales, sums of one block), the queries' sums, offsets
    and scaled weights, then the scores [group, slots].
    """
    group, dim, width = config.group, config.dim, config.width
    kinds = config.packed.weight_groups
    plain, turned, sums, turned_sums = 0, group * width, 2 * group * width, 3 * group * width
    part, totals = 5 * group * width, 6 * group * width
    offsets = totals + 2 * group
    scaled, scores = offsets + group * kinds, config.scratch
    exact, packed = lists[EXACT], lists[PACKED]
    at = scores + padded(exact[COUNT])
    length = padded(exact[COUNT]) + padded(packed[COUNT])
    if length == 0:
        for query in range(group):
            for i in range(dim):
                out[query, i] = 0
        return
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
    score(config.exact, group, pool, following, exact, scratch, plain, width, totals, scores, length)
    if config.has_packed:
        score(config.packed, group, pool, following, packed, scratch, turned, width, totals, at, length)
    for query in range(group):
        _softmax(scratch, scores + query * length, length)
    if not np.isnan(decay):
        _record(config.exact, group, pool, following, exact, scratch, scores, length, decay)
        if config.has_packed:
            _record(config.packed, group, pool, following, packed, scratch, at, length, decay)
    add_values(
        config.exact,
        group,
        pool,
        following,
        exact,
        scratch,
        scores,
        length,
        scaled,
        offsets,
        part,
        sums,
        width,
    )
    if config.has_packed:
        add_values(
            config.packed, group, pool, following, packed, scratch, at, length, scaled, offsets, part, turned_sums,
            width,
        )  # fmt: skip
    for query in range(group):
        of_packed = turned_sums + query * width
        for i in range(dim):
            kind = min(i // config.packed.group_dims, kinds - 1)
            scratch[of_packed + i] += scratch[offsets + query * kinds + kind]
        if config.rotate:
            turn_back(scratch, of_packed, signs)
        for i in range(dim):
            out[query, i] = scratch[sums + query * width + i] + scratch[of_packed + i]


@inlined
def most_scratch(config, book, layer, rows):
    """The largest `scratch_needed` of these rows."""
    needed = 0
    for row in rows:
        for head in range(config.heads):
            needed = max(needed, scratch_needed(config, book[row, layer, head]))
    return needed


@inlined
def attend_share(
    config, pool, following, book, layer, rows, queries, signs, decay, out, scratch, part, parts
):
    """`attend_head` for every `parts`-th (request, KV head), beginning with number `part`."""
    for number in range(part, len(rows) * config.heads, parts):
        request, head = number // config.heads, number % config.heads
        first = head * config.group
        attend_head(
            config, pool, following, book[rows[request], layer, head],
            queries[request, first : first + config.group], signs, decay[request],
            out[request, first : first + config.group], scratch,
        )  # fmt: skip
