# mypy: allow-untyped-defs
"""Exact slots quantised, once, into packed ones: scales fitted as `quant.sharing` says, then codes."""

import numpy as np

from backends.kvcompress.store.codes import LANES
from backends.kvcompress.store.encode import encode, forget, measure, scale_of
from backends.kvcompress.store.groups import has_room, next_chunk
from backends.kvcompress.store.inner import inlined
from backends.kvcompress.store.memory import (
    attention_of,
    copy_value,
    key_at,
    read_floats,
    scatter_key,
    set_attention,
    set_position,
    value_at,
)
from backends.kvcompress.store.pages import (
    COUNT,
    EXACT,
    KEY_SCALE,
    LIVE,
    PACKED,
    UNSET,
    next_slot,
)
from backends.kvcompress.store.scales import block_at, read_scales, slot_scale_at, write_scale
from backends.kvcompress.store.slots import compact
from backends.kvcompress.store.turning import turn
from backends.kvcompress.store.wanted import sort_by_position, wanted_slots


@inlined
def _exact(source, pool, where, kind, signs, rotate, vector):
    """A vector as it is to be quantised: read, and rotated."""
    if kind == 0:
        read_floats(source.keys, pool, key_at(source, where[0], where[1]), LANES, vector)
    else:
        read_floats(source.values, pool, value_at(source, where[0], where[1]), 1, vector)
    if rotate:
        turn(vector, 0, signs)


@inlined
def _write(layout, pool, start, slot, kind, steps, offsets, coded, vector):
    """Codes of a vector whose scales are known."""
    encode(layout.keys if kind == 0 else layout.values, vector, steps, offsets, coded)
    if kind == 0:
        scatter_key(layout.keys, coded, pool, key_at(layout, start, slot))
    else:
        copy_value(layout.values, coded, 0, pool, value_at(layout, start, slot))


@inlined
def _fit_slot(layout, pool, start, slot, kind, vector, shared):
    """Write the scales of a slot: of what was measured for its token (shared, [5]), or of its own values."""
    own = np.empty(5, np.float32)
    groups = layout.key_groups if kind == 0 else layout.value_groups
    codes = layout.keys if kind == 0 else layout.values
    dims = min(layout.group_dims, layout.dim)
    for group in range(groups):
        if len(shared):
            scale, zero = scale_of(codes, shared)
        else:
            forget(own)
            for i in range(group * dims, (group + 1) * dims):
                measure(vector[i], own)
            scale, zero = scale_of(codes, own)
        at, behind = slot_scale_at(layout, start, slot, kind, group)
        write_scale(layout, pool, at, behind, scale, zero)


@inlined
def _measured(source, target, pool, following, book, row, layer, first, end, signs):
    """What values share over heads: float32 [2, n, 5], one entry for each position (or one in all, for a tensor), and
    the lowest position."""
    low, high = np.int64(2**62), np.int64(-1)
    for head in range(book.shape[2]):
        found = wanted_slots(source, pool, following, book[row, layer, head, EXACT], first, end)
        for number in range(len(found)):
            low, high = min(low, found[number, 2]), max(high, found[number, 2])
    entries = high - low + 1 if high >= 0 else 0
    count = 1 if target.by_tensor else entries
    measured = np.empty((2, count, 5), np.float32)
    for kind in range(2):
        for i in range(count):
            forget(measured[kind, i])
    vector = np.empty(source.dim, np.float32)
    for head in range(book.shape[2]):
        entry = book[row, layer, head, EXACT]
        found = wanted_slots(source, pool, following, entry, first, end)
        for number in range(len(found)):
            place = 0 if target.by_tensor else found[number, 2] - low
            for kind in range(2):
                _exact(source, pool, found[number], kind, signs, target.rotate, vector)
                for i in range(source.dim):
                    measure(vector[i], measured[kind, place])
    return measured, low


@inlined
def _fix_tensor(target, book, row, layer, measured):
    for kind in range(2):
        if measured[kind, 0, 4] > 0:
            scale, zero = scale_of(target.keys if kind == 0 else target.values, measured[kind, 0])
            for head in range(book.shape[2]):
                book[row, layer, head, PACKED, KEY_SCALE + kind] = np.int64(scale) << 16 | np.int64(zero)


@inlined
def _pack_slots(
    source, target, pool, following, free, counters, book, row, layer, head, first, end, signs, measured, low
):
    """Those of one head, each for itself. Returns whether there was room."""
    entry, into = book[row, layer, head, EXACT], book[row, layer, head, PACKED]
    found = wanted_slots(source, pool, following, entry, first, end)
    kept = np.ones(entry[COUNT], np.bool_)
    coded, vector = np.empty(4 * target.width, np.uint8), np.empty(source.dim, np.float32)
    steps, offsets = np.empty(source.dim, np.float32), np.empty(source.dim, np.float32)
    room = True
    for number in range(len(found)):
        page, slot = next_slot(target, following, free, counters, book, row, layer, head, PACKED)
        if page < 0:
            room = False
            break
        start = page * target.page_bytes
        if slot == 0:  # what lay here before may be no number once it is read as a scale
            for byte in range(start + target.key_scales_at, start + target.page_bytes):
                pool[byte] = 0
        for kind in range(2):
            _exact(source, pool, found[number], kind, signs, target.rotate, vector)
            shared = measured[kind, found[number, 2] - low] if target.across_heads else measured[kind, 0, :0]
            _fit_slot(target, pool, start, slot, kind, vector, shared)
            read_scales(target, pool, into, start, slot, kind, steps, offsets)
            _write(target, pool, start, slot, kind, steps, offsets, coded, vector)
        set_position(target, pool, start, slot, found[number, 2])
        set_attention(
            target, pool, start, slot, attention_of(source, pool, found[number, 0], found[number, 1])
        )
        kept[found[number, 3]] = False
    compact(source, pool, following, free, counters, entry, row, kept)
    return room


@inlined
def _fit_channels(source, target, pool, group, kind, signs, vector, scales):
    """Scale and zero (bits) of each channel of a group of slots into scales: uint16 [2, dim]."""
    measured = np.empty((source.dim, 5), np.float32)
    for i in range(source.dim):
        forget(measured[i])
    for number in range(len(group)):
        _exact(source, pool, group[number], kind, signs, target.rotate, vector)
        for i in range(source.dim):
            measure(vector[i], measured[i])
    for i in range(source.dim):
        scales[0, i], scales[1, i] = scale_of(target.keys if kind == 0 else target.values, measured[i])


@inlined
def _pack_groups(source, target, pool, following, free, counters, book, row, layer, head, first, end, signs):
    """The whole groups of one head. Returns whether there was room."""
    entry, into = book[row, layer, head, EXACT], book[row, layer, head, PACKED]
    found = wanted_slots(source, pool, following, entry, first, end)
    sort_by_position(found)
    kept = np.ones(entry[COUNT], np.bool_)
    coded, vector = np.empty(4 * target.width, np.uint8), np.empty(source.dim, np.float32)
    steps, offsets = np.empty(source.dim, np.float32), np.empty(source.dim, np.float32)
    scales = np.zeros((2, 2, source.dim), np.uint16)
    kinds = 2 if target.channel_values else 1
    room, start, chunk = True, np.int64(0), np.int64(0)
    for begin in range(0, len(found) - target.share + 1, target.share):
        if not has_room(target, pool, counters, into):
            room = False
            break
        for kind in range(kinds):
            group = found[begin : begin + target.share]
            _fit_channels(source, target, pool, group, kind, signs, vector, scales[kind])
        for member in range(target.share):
            where = found[begin + member]
            slot = chunk * LANES + member % LANES
            if member % LANES == 0:
                start, chunk, fresh = next_chunk(
                    target, pool, following, free, counters, into, row, member > 0
                )
                slot = chunk * LANES
                if fresh:
                    for kind in range(kinds):
                        at = block_at(target, pool, start, slot, kind)
                        for i in range(source.dim):
                            scale, zero = scales[kind, 0, i], scales[kind, 1, i]
                            write_scale(target, pool, at + 2 * i, 2 * target.dim, scale, zero)
            for kind in range(2):
                _exact(source, pool, where, kind, signs, target.rotate, vector)
                _fit_slot(target, pool, start, slot, kind, vector, steps[:0])
                read_scales(target, pool, into, start, slot, kind, steps, offsets)
                _write(target, pool, start, slot, kind, steps, offsets, coded, vector)
            set_position(target, pool, start, slot, where[2])
            set_attention(target, pool, start, slot, attention_of(source, pool, where[0], where[1]))
            into[LIVE] += 1
            kept[where[3]] = False
    compact(source, pool, following, free, counters, entry, row, kept)
    return room


@inlined
def pack_slots(pool, following, free, counters, book, layouts, layer, row, first, end, signs):
    """Quantise the exact slots with first <= position < end. Returns whether there was room for all."""
    source, target = layouts[row, EXACT], layouts[row, PACKED]
    measured, low = np.empty((2, 1, 5), np.float32), np.int64(0)
    fits = target.by_tensor and book[row, layer, 0, PACKED, KEY_SCALE] == UNSET
    if fits or target.across_heads:
        measured, low = _measured(source, target, pool, following, book, row, layer, first, end, signs)
        if fits:
            _fix_tensor(target, book, row, layer, measured)
    for head in range(book.shape[2]):
        if target.by_tokens:
            room = _pack_groups(
                source, target, pool, following, free, counters, book, row, layer, head, first, end, signs
            )
        else:
            room = _pack_slots(
                source, target, pool, following, free, counters, book, row, layer, head, first, end, signs,
                measured, low,
            )  # fmt: skip
        if not room:
            return False
    return True
