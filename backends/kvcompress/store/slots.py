# mypy: allow-untyped-defs
"""Slots written, moved, read back and packed, one KV head of one row at a time."""

import numpy as np

from backends.kvcompress.store.codes import LANES
from backends.kvcompress.store.encode import decode
from backends.kvcompress.store.groups import mark
from backends.kvcompress.store.inner import inlined
from backends.kvcompress.store.memory import (
    attention_of,
    copy_key,
    copy_value,
    gather_key,
    is_dead,
    key_at,
    position_of,
    read_floats,
    set_attention,
    set_position,
    value_at,
    write_floats,
)
from backends.kvcompress.store.pages import (
    COUNT,
    EXACT,
    FIRST,
    LIVE,
    PACKED,
    list_pages,
    next_slot,
    pages_needed,
    shorten,
)
from backends.kvcompress.store.scales import move_scales, read_scales
from backends.kvcompress.store.turning import turn_back


@inlined
def append_tokens(pool, following, free, counters, book, layouts, layer, rows, positions, keys, values):
    """Each token to the exact slots of its row. Returns whether there was room; where not, nothing has changed."""
    heads = book.shape[2]
    if counters[0] < len(rows) * heads and pages_needed(layouts, book, rows, layer) > counters[0]:
        return False
    for head in range(heads):  # one after the other, so that the pages of a head's tokens lie side by side
        for token in range(len(rows)):
            layout = layouts[rows[token], EXACT]
            page, slot = next_slot(layout, following, free, counters, book, rows[token], layer, head, EXACT)
            start = page * layout.page_bytes
            write_floats(layout.keys, keys[token, head], pool, key_at(layout, start, slot), LANES)
            write_floats(layout.values, values[token, head], pool, value_at(layout, start, slot), 1)
            set_position(layout, pool, start, slot, positions[token])
            set_attention(layout, pool, start, slot, 0)
    return True


@inlined
def add_chunk(
    pool, following, free, counters, book, layouts, layer, row, positions, keys, values, given, kept
):
    """The tokens of a chunk to the exact slots of one row, where the last columns of kept bool [H, >= T] say so;
    given float32 [H, >= T]. Either may be empty ([0, 0]): all are kept, 0 was given. Returns whether there was room;
    where not, nothing has changed."""
    layout, needed = layouts[row, EXACT], 0
    of_kept, of_given = kept.shape[1] - len(positions), given.shape[1] - len(positions)
    for head in range(book.shape[2]):
        more = kept[head, of_kept:].sum() if len(kept) else len(positions)
        held = book[row, layer, head, EXACT, COUNT]
        needed += (held + more + layout.slots - 1) // layout.slots - (held + layout.slots - 1) // layout.slots
    if needed > counters[0]:
        return False
    for head in range(book.shape[2]):
        for token in range(len(positions)):
            if len(kept) and not kept[head, of_kept + token]:
                continue
            page, slot = next_slot(layout, following, free, counters, book, row, layer, head, EXACT)
            start = page * layout.page_bytes
            write_floats(layout.keys, keys[token, head], pool, key_at(layout, start, slot), LANES)
            write_floats(layout.values, values[token, head], pool, value_at(layout, start, slot), 1)
            set_position(layout, pool, start, slot, positions[token])
            set_attention(
                layout, pool, start, slot, given[head, of_given + token] if len(given) else np.float32(0)
            )
    return True


@inlined
def _move(layout, pool, source, old, target, new):
    """A slot of the page at byte `source` over one of the page at byte `target`."""
    copy_key(layout.keys, pool, key_at(layout, source, old), pool, key_at(layout, target, new))
    copy_value(layout.values, pool, value_at(layout, source, old), pool, value_at(layout, target, new))
    set_position(layout, pool, target, new, position_of(layout, pool, source, old))
    set_attention(layout, pool, target, new, attention_of(layout, pool, source, old))
    move_scales(layout, pool, source, old, target, new)


@inlined
def compact(layout, pool, following, free, counters, entry, row, kept):
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


@inlined
def keep_slots(pool, following, free, counters, book, layouts, layer, row, kept):
    """kept bool [H, n], packed slots before exact ones, as `read_slots` gives them."""
    for head in range(book.shape[2]):
        before = book[row, layer, head, PACKED, LIVE]
        for region in range(2):
            layout, entry = layouts[row, region], book[row, layer, head, region]
            of_region = kept[head, :before] if region == PACKED else kept[head, before:]
            if layout.by_tokens:
                mark(layout, pool, following, free, counters, entry, row, of_region)
            else:
                compact(layout, pool, following, free, counters, entry, row, of_region)


@inlined
def read_vector(layout, pool, entry, start, slot, kind, steps, offsets, coded, vector):
    """Key (kind 0) or value (1) of a slot into vector float32 [dim], as it was stored; the others are scratch."""
    codes = layout.keys if kind == 0 else layout.values
    if codes.bits > 8:
        at = key_at(layout, start, slot) if kind == 0 else value_at(layout, start, slot)
        read_floats(codes, pool, at, LANES if kind == 0 else 1, vector)
        return
    read_scales(layout, pool, entry, start, slot, kind, steps, offsets)
    if kind == 0:
        gather_key(codes, pool, key_at(layout, start, slot), coded)
        decode(codes, coded, 0, steps, offsets, vector)
    else:
        decode(codes, pool, value_at(layout, start, slot), steps, offsets, vector)


@inlined
def _read_list(layout, pool, following, entry, signs, first, vectors, keys, values, positions, given):
    """Slots of one list into the arrays of one head, from index `first` on."""
    coded = np.empty(layout.keys.bytes, np.uint8)
    vector, steps = np.empty(layout.dim, np.float32), np.empty(layout.dim, np.float32)
    offsets = np.empty(layout.dim, np.float32)
    page, at = entry[FIRST], first
    for number in range(entry[COUNT]):
        slot = number % layout.slots
        if slot == 0 and number:
            page = following[page]
        start = page * layout.page_bytes
        if is_dead(layout, pool, start, slot):
            continue
        positions[at] = position_of(layout, pool, start, slot)
        given[at] = attention_of(layout, pool, start, slot)
        for kind in range(2 if vectors else 0):
            target = keys if kind == 0 else values
            read_vector(layout, pool, entry, start, slot, kind, steps, offsets, coded, vector)
            if layout.rotate:
                turn_back(vector, 0, signs)
            for i in range(layout.dim):
                target[at, i] = vector[i]
        at += 1


@inlined
def read_slots(
    pool, following, book, layouts, layer, row, signs, vectors, keys, values, positions, packed, given
):
    """Everything of a row in a layer, packed slots before exact ones. keys, values [H, n or 0, D], zeros where a head
    has fewer; positions int64 [H, n] of -1; packed bool [H, n] of false; given float32 [H, n] of 0."""
    for head in range(book.shape[2]):
        before = book[row, layer, head, PACKED, LIVE]
        for number in range(before):
            packed[head, number] = True
        for region in range(2):
            first = 0 if region == PACKED else before
            _read_list(
                layouts[row, region], pool, following, book[row, layer, head, region], signs, first,
                vectors, keys[head], values[head], positions[head], given[head],
            )  # fmt: skip


@inlined
def add_given(pool, following, book, layouts, layer, row, decay, given):
    """attention = decay * attention + given [H, n], in the order of `read_slots`; nothing where none is recorded."""
    for head in range(book.shape[2]):
        at = 0
        for region in (PACKED, EXACT):
            layout, entry = layouts[row, region], book[row, layer, head, region]
            page, left = entry[FIRST], entry[COUNT]
            while left > 0:
                start = page * layout.page_bytes
                for slot in range(min(left, layout.slots)):
                    if not is_dead(layout, pool, start, slot):
                        before = attention_of(layout, pool, start, slot)
                        set_attention(layout, pool, start, slot, decay * before + given[head, at])
                        at += 1
                left -= layout.slots
                page = following[page]


@inlined
def move_keys(pool, following, book, layouts, layer, row, keys, positions):
    """Other keys [H, n, D] and positions [H, n] for exact slots, of which a row that packs none has n."""
    layout = layouts[row, EXACT]
    for head in range(book.shape[2]):
        entry = book[row, layer, head, EXACT]
        page = entry[FIRST]
        for number in range(entry[COUNT]):
            slot = number % layout.slots
            if slot == 0 and number:
                page = following[page]
            start = page * layout.page_bytes
            write_floats(layout.keys, keys[head, number], pool, key_at(layout, start, slot), LANES)
            set_position(layout, pool, start, slot, positions[head, number])
