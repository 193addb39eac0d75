"""Slots written, moved, read back and packed, one KV head of one row at a time."""

import numpy as np
from numba import njit

from backends.kvcompress.store.encode import decode, encode
from backends.kvcompress.store.memory import (
    attention_of,
    copy_key,
    copy_value,
    gather_key,
    key_at,
    peek,
    poke,
    position_of,
    scatter_key,
    set_attention,
    set_position,
    value_at,
)
from backends.kvcompress.store.pages import (
    COUNT,
    EXACT,
    FIRST,
    PACKED,
    list_pages,
    next_slot,
    pages_needed,
    shorten,
)
from backends.kvcompress.store.turning import turn_back


@njit
def append_tokens(  # type: ignore[no-untyped-def]
    pool, following, free, counters, book, layouts, layer, rows, positions, keys, values
):
    """Each token to the exact slots of its row. Returns whether there was room; where not, nothing has changed."""
    heads = book.shape[2]
    if counters[0] < len(rows) * heads and pages_needed(layouts, book, rows, layer) > counters[0]:
        return False
    coded = np.empty(4 * layouts[rows[0], EXACT].width, dtype=np.uint8)
    for token in range(len(rows)):
        layout = layouts[rows[token], EXACT]
        for head in range(heads):
            page, slot = next_slot(layout, following, free, counters, book, rows[token], layer, head, EXACT)
            start = page * layout.page_bytes
            encode(layout, keys[token, head], np.uint16(0), np.uint16(0), coded)
            scatter_key(layout, coded, pool, key_at(layout, start, slot))
            encode(layout, values[token, head], np.uint16(0), np.uint16(0), coded)
            copy_value(layout, coded, 0, pool, value_at(layout, start, slot))
            set_position(layout, pool, start, slot, positions[token])
            set_attention(layout, pool, start, slot, 0)
    return True


@njit
def scales_at(layout, start, slot):  # type: ignore[no-untyped-def]
    """First bytes of the scales of a slot's key and value."""
    return start + layout.key_scales_at + 2 * slot, start + layout.value_scales_at + 2 * slot


@njit
def _move_scale(layout, pool, begin, end):  # type: ignore[no-untyped-def]
    poke(pool, end, peek(pool, begin, np.uint16))
    if layout.zeros:
        poke(pool, end + 2 * layout.slots, peek(pool, begin + 2 * layout.slots, np.uint16))


@njit
def _move(layout, pool, source, old, target, new):  # type: ignore[no-untyped-def]
    """A slot of the page at byte `source` over one of the page at byte `target`."""
    copy_key(layout, pool, key_at(layout, source, old), pool, key_at(layout, target, new))
    copy_value(layout, pool, value_at(layout, source, old), pool, value_at(layout, target, new))
    set_position(layout, pool, target, new, position_of(layout, pool, source, old))
    set_attention(layout, pool, target, new, attention_of(layout, pool, source, old))
    if layout.scaled_keys:
        old_key, old_value = scales_at(layout, source, old)
        new_key, new_value = scales_at(layout, target, new)
        _move_scale(layout, pool, old_key, new_key)
        _move_scale(layout, pool, old_value, new_value)


@njit
def compact(layout, pool, following, free, counters, entry, row, kept):  # type: ignore[no-untyped-def]
    """Drop the slots of a list where kept is false: the last ones that stay move to the places of those that go."""
    pages = np.empty((entry[COUNT] + layout.slots - 1) // layout.slots, dtype=np.int64)
    list_pages(entry, following, layout, pages)
    hole, last = 0, entry[COUNT] - 1
    while True:
        while hole <= last and kept[hole]:
            hole += 1
        while last > hole and not kept[last]:
            last -= 1
        if hole >= last:
            break
        source, target = pages[last // layout.slots], pages[hole // layout.slots]
        _move(
            layout, pool, source * layout.page_bytes, last % layout.slots, target * layout.page_bytes,
            hole % layout.slots,
        )  # fmt: skip
        hole += 1
        last -= 1
    shorten(entry, following, free, counters, row, layout, pages, hole)


@njit
def keep_slots(pool, following, free, counters, book, layouts, layer, row, kept):  # type: ignore[no-untyped-def]
    """kept bool [H, n], packed slots before exact ones, as `read_slots` gives them."""
    for head in range(book.shape[2]):
        before = book[row, layer, head, PACKED, COUNT]
        for region in range(2):
            entry = book[row, layer, head, region]
            of_region = kept[head, :before] if region == PACKED else kept[head, before:]
            compact(layouts[row, region], pool, following, free, counters, entry, row, of_region)


@njit
def read_vector(layout, pool, start, slot, coded, vector, key):  # type: ignore[no-untyped-def]
    """Key or value of a slot into vector [width], as it was stored."""
    scale = zero = np.uint16(0)
    if layout.scaled_keys:
        key_scale, value_scale = scales_at(layout, start, slot)
        at = key_scale if key else value_scale
        scale = peek(pool, at, np.uint16)
        if layout.zeros:
            zero = peek(pool, at + 2 * layout.slots, np.uint16)
    if key:
        gather_key(layout, pool, key_at(layout, start, slot), coded)
        decode(layout, coded, 0, scale, zero, vector)
    else:
        decode(layout, pool, value_at(layout, start, slot), scale, zero, vector)


@njit
def _read_list(layout, pool, following, entry, signs, first, vectors, keys, values, positions, given):  # type: ignore[no-untyped-def]
    """Slots of one list into the arrays of one head, from index `first` on."""
    pages = np.empty((entry[COUNT] + layout.slots - 1) // layout.slots, dtype=np.int64)
    list_pages(entry, following, layout, pages)
    coded = np.empty(layout.value_bytes, dtype=np.uint8)
    vector = np.empty(layout.dim, dtype=np.float32)
    for number in range(entry[COUNT]):
        start, slot = pages[number // layout.slots] * layout.page_bytes, number % layout.slots
        positions[first + number] = position_of(layout, pool, start, slot)
        given[first + number] = attention_of(layout, pool, start, slot)
        if vectors:
            for kind in range(2):
                target = keys if kind == 0 else values
                read_vector(layout, pool, start, slot, coded, vector, kind == 0)
                if layout.rotate:
                    turn_back(vector, 0, signs)
                for i in range(layout.dim):
                    target[first + number, i] = vector[i]


@njit
def read_slots(  # type: ignore[no-untyped-def]
    pool, following, book, layouts, layer, row, signs, vectors, keys, values, positions, packed, given
):
    """Everything of a row in a layer, packed slots before exact ones. keys, values [H, n or 0, D], zeros where a head
    has fewer; positions int64 [H, n] of -1; packed bool [H, n] of false; given float32 [H, n] of 0."""
    for head in range(book.shape[2]):
        before = book[row, layer, head, PACKED, COUNT]
        for number in range(before):
            packed[head, number] = True
        for region in range(2):
            first = 0 if region == PACKED else before
            _read_list(
                layouts[row, region], pool, following, book[row, layer, head, region], signs, first,
                vectors, keys[head], values[head], positions[head], given[head],
            )  # fmt: skip


@njit
def add_given(pool, following, book, layouts, layer, row, decay, given):  # type: ignore[no-untyped-def]
    """attention = decay * attention + given [H, n], in the order of `read_slots`; nothing where none is recorded."""
    for head in range(book.shape[2]):
        at = 0
        for region in (PACKED, EXACT):
            layout, entry = layouts[row, region], book[row, layer, head, region]
            page = entry[FIRST]
            for number in range(entry[COUNT]):
                slot = number % layout.slots
                if slot == 0 and number:
                    page = following[page]
                start = page * layout.page_bytes
                before = attention_of(layout, pool, start, slot)
                set_attention(layout, pool, start, slot, decay * before + given[head, at])
                at += 1


@njit
def move_keys(pool, following, book, layouts, layer, row, keys, positions):  # type: ignore[no-untyped-def]
    """Other keys [H, n, D] and positions [H, n] for exact slots, of which a row that packs none has n."""
    layout = layouts[row, EXACT]
    coded = np.empty(layout.value_bytes, dtype=np.uint8)
    for head in range(book.shape[2]):
        entry = book[row, layer, head, EXACT]
        page = entry[FIRST]
        for number in range(entry[COUNT]):
            slot = number % layout.slots
            if slot == 0 and number:
                page = following[page]
            start = page * layout.page_bytes
            encode(layout, keys[head, number], np.uint16(0), np.uint16(0), coded)
            scatter_key(layout, coded, pool, key_at(layout, start, slot))
            set_position(layout, pool, start, slot, positions[head, number])
