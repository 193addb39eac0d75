# mypy: allow-untyped-defs
"""Attention of one query token over the slots of its row: the kernel that every decode step runs in every layer.

The pages of a list are gone through once, keys and values of a page together, with a softmax whose largest score is
found on the way (Milakov and Gimelshein 2018, arXiv 1805.02867), while the page after the next is on its way to the
caches: a pass over keys and another over values read memory in pieces too short for the hardware to foresee.
"""

import numpy as np

from backends.kvcompress.store.codes import LANES
from backends.kvcompress.store.inner import inlined
from backends.kvcompress.store.memory import attention_of, set_attention
from backends.kvcompress.store.pages import COUNT, EXACT, FIRST, PACKED
from backends.kvcompress.store.scores import NONE, ask_for, padded, page_after_next, score_page
from backends.kvcompress.store.simd import add, exp, lane, largest, load, mul, splat, store, sub
from backends.kvcompress.store.sums import add_page
from backends.kvcompress.store.turning import turn, turn_back


@inlined
def _powers(scratch, most, scores, weights, length):
    """scratch[weights:] = e ** (scratch[scores:] - scratch[most]), length (of whole registers) numbers; their sum."""
    shift, total = splat(scratch[most]), splat(np.float32(0))
    for i in range(0, length, LANES):
        powers = exp(sub(load(scratch, scores + i), shift))
        store(scratch, weights + i, powers)
        total = add(total, powers)
    whole = np.float32(0)
    for i in range(LANES):
        whole += lane(total, i)
    return whole


@inlined
def _weigh(config, scratch, query, at, scores, weights, length):
    """Weights of a page's slots for one query, of their scores; what was summed before for a smaller largest score is
    made smaller. at: place of the largest scores so far [group], behind which the sums of weights are."""
    most = load(scratch, scores)
    for i in range(scores + LANES, scores + length, LANES):
        most = largest(most, load(scratch, i))
    peak = lane(most, 0)
    for i in range(1, LANES):
        peak = max(peak, lane(most, i))
    whole = at + config.group + query
    if peak > scratch[at + query]:
        factor = lane(exp(splat(scratch[at + query] - peak)), 0)
        scratch[at + query] = peak
        scratch[whole] *= factor
        width = config.width
        shrink = splat(factor)
        for sums in (2 * config.group * width, 3 * config.group * width):
            for i in range(sums + query * width, sums + (query + 1) * width, LANES):
                store(scratch, i, mul(load(scratch, i), shrink))
        kinds = config.packed.weight_groups
        first = config.offsets + query * kinds
        for i in range(first, first + kinds):
            scratch[i] *= factor
    scratch[whole] += _powers(scratch, at + query, scores, weights, length)


@inlined
def _attend_list(config, layout, pool, following, entry, scratch, queries, sums, scores, length, records):
    """Add the values of a list of pages, weighted, to scratch[sums:] [group, width]; queries: place of the queries.

    scores: place of the first page's scores [group, length]; those of further pages go behind them where `records`,
    else over them.
    """
    group, width, weights = config.group, config.width, config.weights
    page, left, at = entry[FIRST], entry[COUNT], scores
    while left > 0:
        count = min(left, layout.slots)
        filled = padded(count)
        start = page * layout.page_bytes
        coming = page_after_next(following, page) * layout.page_bytes
        ask_for(pool, coming, coming + layout.values_at)
        score_page(
            layout,
            group,
            pool,
            entry,
            start,
            filled // LANES,
            scratch,
            queries,
            width,
            config.totals,
            at,
            length,
        )
        for query in range(group):
            of_query = at + query * length
            for unused in range(of_query + count, of_query + filled):
                scratch[unused] = NONE
            _weigh(
                config, scratch, query, config.peaks, of_query, weights + query * config.page_slots, filled
            )
        ask_for(pool, coming + layout.values_at, coming + layout.page_bytes)
        add_page(
            layout, group, pool, entry, start, count, scratch, weights, config.page_slots, config.scaled,
            config.offsets, config.part, sums, width,
        )  # fmt: skip
        if records:
            at += filled
        left -= count
        page = following[page]


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
        at += padded(count)
        left -= count
        page = following[page]


@inlined
def scratch_needed(config, lists):
    """Floats of scratch memory for one KV head with these lists."""
    held = padded(lists[EXACT, COUNT]) + padded(lists[PACKED, COUNT])
    return config.scratch + config.group * max(held, config.page_slots)


@inlined
def attend_head(config, pool, following, lists, queries, signs, decay, out, scratch):
    """out = softmax(q k / sqrt(D)) v for the queries [group, D] of one KV head over its lists (of `pages`).

    scratch: float32, as many as `scratch_needed` says, laid out as `rows.RowLayout` says; the scores of all slots
    [group, slots] are held where they are recorded (decay is a number), else those of a page.
    """
    group, dim, width = config.group, config.dim, config.width
    kinds = config.packed.weight_groups
    plain, turned, sums, turned_sums = 0, group * width, 2 * group * width, 3 * group * width
    exact, packed = lists[EXACT], lists[PACKED]
    if exact[COUNT] + packed[COUNT] == 0:
        for query in range(group):
            for i in range(dim):
                out[query, i] = 0
        return
    for i in range(config.scratch):
        scratch[i] = 0
    scale = np.float32(1 / np.sqrt(dim))
    for query in range(group):
        scratch[config.peaks + query] = NONE
        for i in range(dim):
            number = queries[query, i] * scale
            scratch[plain + query * width + i] = number
            scratch[turned + query * width + i] = number
        if config.rotate:
            turn(scratch, turned + query * width, signs)
        for i in range(dim):
            scratch[config.totals + query] += scratch[turned + query * width + i]
    records, scores = not np.isnan(decay), config.scratch
    length, behind = config.page_slots, scores
    if records:
        length, behind = padded(exact[COUNT]) + padded(packed[COUNT]), scores + padded(exact[COUNT])
    _attend_list(config, config.exact, pool, following, exact, scratch, plain, sums, scores, length, records)
    if config.has_packed:
        _attend_list(
            config, config.packed, pool, following, packed, scratch, turned, turned_sums, behind, length, records
        )  # fmt: skip
    if records:
        for query in range(group):
            at = scores + query * length
            _powers(scratch, config.peaks + query, at, at, length)
            inverse = splat(np.float32(1) / scratch[config.peaks + group + query])
            for i in range(at, at + length, LANES):
                store(scratch, i, mul(load(scratch, i), inverse))
        _record(config.exact, group, pool, following, exact, scratch, scores, length, decay)
        if config.has_packed:
            _record(config.packed, group, pool, following, packed, scratch, behind, length, decay)
    for query in range(group):
        of_packed, inverse = (
            turned_sums + query * width,
            np.float32(1) / scratch[config.peaks + group + query],
        )
        for i in range(dim):
            kind = min(i // config.packed.group_dims, kinds - 1)
            scratch[of_packed + i] += scratch[config.offsets + query * kinds + kind]
        if config.rotate:
            turn_back(scratch, of_packed, signs)
        for i in range(dim):
            out[query, i] = (scratch[sums + query * width + i] + scratch[of_packed + i]) * inverse


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
