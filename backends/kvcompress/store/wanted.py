# mypy: allow-untyped-defs
"""Which exact slots are to be packed."""

import numpy as np

from backends.kvcompress.store.inner import inlined
from backends.kvcompress.store.memory import position_of
from backends.kvcompress.store.pages import COUNT, list_pages


@inlined
def wanted_slots(source, pool, following, entry, first, end):
    """Byte of the page, place, position and number in its list of each exact slot from first to end: int64 [n, 4]."""
    pages = np.empty((entry[COUNT] + source.slots - 1) // source.slots, np.int64)
    list_pages(entry, following, source, pages)
    found = np.empty((entry[COUNT], 4), np.int64)
    count = 0
    for number in range(entry[COUNT]):
        start, slot = pages[number // source.slots] * source.page_bytes, number % source.slots
        position = position_of(source, pool, start, slot)
        if first <= position < end:
            found[count, 0], found[count, 1], found[count, 2], found[count, 3] = start, slot, position, number
            count += 1
    return found[:count]


@inlined
def sort_by_position(found):
    """By position, in place (Shell's method)."""
    gap = len(found) // 2
    while gap > 0:
        for number in range(gap, len(found)):
            place = number
            while place >= gap and found[place - gap, 2] > found[place, 2]:
                for i in range(4):
                    found[place, i], found[place - gap, i] = found[place - gap, i], found[place, i]
                place -= gap
        gap //= 2
