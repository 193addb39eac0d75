# mypy: allow-untyped-defs
"""The scales of a slot, wherever they lie: with the slot, in a block of its page, or in the book."""

import numpy as np

from backends.kvcompress.store.codes import LANES
from backends.kvcompress.store.inner import inlined
from backends.kvcompress.store.memory import of_bf16, peek, poke
from backends.kvcompress.store.pages import KEY_SCALE


@inlined
def slot_scale_at(layout, start, slot, kind, group):
    """First byte of one of a slot's own scales, and how far behind it its zero lies. kind: 0 keys, 1 values."""
    groups = layout.key_groups if kind == 0 else layout.value_groups
    first = layout.key_scales_at if kind == 0 else layout.value_scales_at
    return start + first + 2 * (group * layout.slots + slot), 2 * groups * layout.slots


@inlined
def block_at(layout, pool, start, slot, kind):
    """First byte of the scales of all channels for a slot; their zeros follow."""
    block = np.int64(pool[start + layout.block_numbers_at + slot // LANES])
    half = layout.block_bytes // 2 if layout.channel_values else 0
    return start + layout.blocks_at + block * layout.block_bytes + kind * half


@inlined
def _read(layout, pool, at, behind, first, end, steps, offsets):
    step = of_bf16(peek(pool, at, np.uint16))
    offset = of_bf16(peek(pool, at + behind, np.uint16)) if layout.zeros else np.float32(0)
    for i in range(first, end):
        steps[i] = step
        offsets[i] = offset


@inlined
def read_scales(layout, pool, entry, start, slot, kind, steps, offsets):
    """Scale and zero of each value of a slot's key (kind 0) or value (1): float32 [dim] each."""
    groups = layout.key_groups if kind == 0 else layout.value_groups
    if layout.by_tensor:
        fixed = entry[KEY_SCALE + kind]
        for i in range(layout.dim):
            steps[i] = of_bf16(fixed >> 16)
            offsets[i] = of_bf16(fixed & 0xFFFF)
    elif groups:
        dims = min(layout.group_dims, layout.dim)
        for group in range(groups):
            at, behind = slot_scale_at(layout, start, slot, kind, group)
            _read(layout, pool, at, behind, group * dims, (group + 1) * dims, steps, offsets)
    elif layout.by_tokens:
        at = block_at(layout, pool, start, slot, kind)
        for i in range(layout.dim):
            _read(layout, pool, at + 2 * i, 2 * layout.dim, i, i + 1, steps, offsets)


@inlined
def write_scale(layout, pool, at, behind, scale, zero):
    """uint16 bits of both."""
    poke(pool, at, np.uint16(scale))
    if layout.zeros:
        poke(pool, at + behind, np.uint16(zero))


@inlined
def move_scales(layout, pool, source, old, target, new):
    """The scales that a slot has for itself, to another slot."""
    for kind in range(2):
        for group in range(layout.key_groups if kind == 0 else layout.value_groups):
            begin, behind = slot_scale_at(layout, source, old, kind, group)
            end, _ = slot_scale_at(layout, target, new, kind, group)
            poke(pool, end, peek(pool, begin, np.uint16))
            if layout.zeros:
                poke(pool, end + behind, peek(pool, begin + behind, np.uint16))
