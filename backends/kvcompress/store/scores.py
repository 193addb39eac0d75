# mypy: allow-untyped-defs
"""Scores of one token's queries against the keys of a list of pages."""

import numpy as np

from backends.kvcompress.store.codecs import unpack_keys
from backends.kvcompress.store.codes import LANES
from backends.kvcompress.store.inner import inlined
from backends.kvcompress.store.memory import is_dead, of_bf16, peek
from backends.kvcompress.store.pages import KEY_SCALE
from backends.kvcompress.store.products import add_products, load_key_scales, scale_keys, store_scores
from backends.kvcompress.store.scales import block_at
from backends.kvcompress.store.simd import load_bf16, prefetch, splat, zeros

NONE = np.float32(-3e38)  # of a place that holds no slot


@inlined
def padded(count):
    """Rounded up to whole registers."""
    return (count + LANES - 1) // LANES * LANES


@inlined
def _fold_scales(layout, group, pool, at, scratch, queries, folded, sums, width):
    """Queries times the scales of the channels, which begin at byte `at`; products with their zeros to sums."""
    for query in range(group):
        begin, end, total = queries + query * width, folded + query * width, np.float32(0)
        for i in range(layout.dim):
            scratch[end + i] = scratch[begin + i] * of_bf16(peek(pool, at + 2 * i, np.uint16))
            if layout.zeros:
                total += scratch[begin + i] * of_bf16(peek(pool, at + 2 * (layout.dim + i), np.uint16))
        scratch[sums + query] = total


@inlined
def _products(layout, pool, keys, scales, scratch, queries, apart):
    """Of queries that are computed together with the keys of the eight slots whose chunk begins at byte `keys`."""
    products = zeros(layout.score_sums)
    if layout.key_groups <= 1:
        for row in range(layout.key_rows):
            unpacked = unpack_keys(layout, pool, keys, row)
            products = add_products(layout, products, unpacked, scratch, queries + row, apart)
        return products
    for first in range(0, layout.key_rows, layout.scale_rows):
        dim = first
        steps, offsets = load_key_scales(layout, pool, scales, dim), zeros(layout.key_parts)
        if layout.zeros:
            offsets = load_key_scales(layout, pool, scales + 2 * layout.key_groups * layout.slots, dim)
        for row in range(first, first + layout.scale_rows):
            unpacked = scale_keys(unpack_keys(layout, pool, keys, row), steps, offsets)
            products = add_products(layout, products, unpacked, scratch, queries + row, apart)
    return products


@inlined
def score_page(layout, group, pool, entry, page, chunks, scratch, queries, apart, sums, scores, length):
    """Scores of the first chunks of the page at byte `page`, to scratch[scores + query * length:].

    Places in scratch are those that `decode.attend_head` lays out.
    """
    scale = zero = splat(np.float32(0))
    if layout.by_tensor:
        scale, zero = splat(of_bf16(entry[KEY_SCALE] >> 16)), splat(of_bf16(entry[KEY_SCALE] & 0xFFFF))
    folded, folded_sums, block = queries + 3 * group * apart, sums + group, -1
    for chunk in range(chunks):
        asked, totals = queries, sums
        at = page + layout.key_scales_at + 2 * LANES * chunk
        if layout.key_groups == 1:
            scale = load_bf16(pool, at)
            if layout.zeros:
                zero = load_bf16(pool, at + 2 * layout.slots)
        if layout.by_tokens:
            asked, totals = folded, folded_sums
            if pool[page + layout.block_numbers_at + chunk] != block:
                block = pool[page + layout.block_numbers_at + chunk]
                scales = block_at(layout, pool, page, chunk * LANES, 0)
                _fold_scales(layout, group, pool, scales, scratch, queries, folded, folded_sums, apart)
        for first in range(0, group, layout.queries):
            keys = page + chunk * layout.keys.chunk
            products = _products(layout, pool, keys, at, scratch, asked + first * apart, apart)
            into = scores + chunk * LANES + first * length
            store_scores(layout, products, scale, zero, scratch, totals + first, into, length)
        if layout.by_tokens:
            for slot in range(chunk * LANES, (chunk + 1) * LANES):
                if is_dead(layout, pool, page, slot):
                    for query in range(group):
                        scratch[scores + slot + query * length] = NONE


@inlined
def page_after_next(following, page):
    """Whose memory is asked for while a page is computed, since one page's time is too short; the last page where the
    list ends before."""
    for _ in range(2):
        if following[page] >= 0:
            page = following[page]
    return page


@inlined
def ask_for(pool, start, end):
    """Have the bytes from start to end of the pool brought to the caches."""
    for line in range(start, end, 64):
        prefetch(pool, line)
