"""Exact slots quantised, once, into packed ones."""

import numpy as np
from numba import njit

from backends.kvcompress.store.encode import encode, fit_scale
from backends.kvcompress.store.memory import (
    attention_of,
    copy_value,
    key_at,
    poke,
    position_of,
    scatter_key,
    set_attention,
    set_position,
    value_at,
)
from backends.kvcompress.store.pages import COUNT, EXACT, PACKED, list_pages, next_slot
from backends.kvcompress.store.slots import compact, read_vector, scales_at
from backends.kvcompress.store.turning import turn


@njit
def _write_packed(layout, pool, start, slot, vector, signs, coded, key):  # type: ignore[no-untyped-def]
    """Quantise vector [dim], which is changed by the rotation, into a packed slot."""
    if layout.rotate:
        turn(vector, 0, signs)
    scale, zero = fit_scale(layout, vector)
    encode(layout, vector, scale, zero, coded)
    key_scale, value_scale = scales_at(layout, start, slot)
    at = key_scale if key else value_scale
    poke(pool, at, scale)
    if layout.zeros:
        poke(pool, at + 2 * layout.slots, zero)
    if key:
        scatter_key(layout, coded, pool, key_at(layout, start, slot))
    else:
        copy_value(layout, coded, 0, pool, value_at(layout, start, slot))


@njit
def _pack_head(  # type: ignore[no-untyped-def]
    pool, following, free, counters, book, layouts, layer, row, head, first, end, signs
):
    source, target = layouts[row, EXACT], layouts[row, PACKED]
    entry = book[row, layer, head, EXACT]
    pages = np.empty((entry[COUNT] + source.slots - 1) // source.slots, dtype=np.int64)
    list_pages(entry, following, source, pages)
    kept = np.empty(entry[COUNT], dtype=np.bool_)
    coded = np.empty(max(source.value_bytes, target.value_bytes), dtype=np.uint8)
    vector = np.empty(source.dim, dtype=np.float32)
    room = True
    for number in range(entry[COUNT]):
        kept[number] = True
    for number in range(entry[COUNT]):
        old_start, old = pages[number // source.slots] * source.page_bytes, number % source.slots
        position = position_of(source, pool, old_start, old)
        if not first <= position < end:
            continue
        page, slot = next_slot(target, following, free, counters, book, row, layer, head, PACKED)
        if page < 0:
            room = False
            break
        start = page * target.page_bytes
        if slot == 0:  # what lay here before may be no number once it is read as a scale
            for byte in range(start + target.key_scales_at, start + target.page_bytes):
                pool[byte] = 0
        for kind in range(2):
            read_vector(source, pool, old_start, old, coded, vector, kind == 0)
            _write_packed(target, pool, start, slot, vector, signs, coded, kind == 0)
        set_position(target, pool, start, slot, position)
        set_attention(target, pool, start, slot, attention_of(source, pool, old_start, old))
        kept[number] = False
    compact(source, pool, following, free, counters, entry, row, kept)
    return room


@njit
def pack_slots(pool, following, free, counters, book, layouts, layer, row, first, end, signs):  # type: ignore[no-untyped-def]
    """Quantise the exact slots with first <= position < end. Returns whether there was room for all."""
    for head in range(book.shape[2]):
        if not _pack_head(
            pool, following, free, counters, book, layouts, layer, row, head, first, end, signs
        ):
            return False
    return True
