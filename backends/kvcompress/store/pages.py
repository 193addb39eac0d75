"""The free list, and the lists of pages of each (row, layer, KV head) and region (exact or packed slots).

book: int32 [rows, layers, heads, 2, 3], of each list its first and last page (-1: none) and its number of slots.
following: int32 [pages], the next page of the same list. free: int32 [pages], a stack. counters: int64 [1 + rows],
how many are on it, then how many pages each row holds. All pages of a list but the last are full.
"""

import numpy as np
from numba import njit

FIRST, LAST, COUNT = 0, 1, 2
EXACT, PACKED = 0, 1


@njit
def next_slot(layout, following, free, counters, book, row, layer, head, region):  # type: ignore[no-untyped-def]
    """The page and the place in it of one more slot, already counted; page -1 where the pool is full."""
    entry = book[row, layer, head, region]
    within = entry[COUNT] % layout.slots
    if within == 0:
        if counters[0] == 0:
            return -1, 0
        counters[0] -= 1
        counters[1 + row] += 1
        page = free[counters[0]]
        following[page] = -1
        if entry[COUNT] == 0:
            entry[FIRST] = page
        else:
            following[entry[LAST]] = page
        entry[LAST] = page
    entry[COUNT] += 1
    return entry[LAST], within


@njit
def list_pages(entry, following, layout, pages):  # type: ignore[no-untyped-def]
    """Write the numbers of a list's pages; returns how many."""
    page, found = entry[FIRST], 0
    for _ in range((entry[COUNT] + layout.slots - 1) // layout.slots):
        pages[found] = page
        page = following[page]
        found += 1
    return found


@njit
def shorten(entry, following, free, counters, row, layout, pages, count):  # type: ignore[no-untyped-def]
    """Let the list, whose pages are given, hold its first `count` slots; the rest of its pages is free."""
    held = (entry[COUNT] + layout.slots - 1) // layout.slots
    needed = (count + layout.slots - 1) // layout.slots
    for number in range(held - 1, needed - 1, -1):
        free[counters[0]] = pages[number]
        counters[0] += 1
        counters[1 + row] -= 1
    entry[COUNT] = count
    if needed == 0:
        entry[FIRST] = -1
        entry[LAST] = -1
    else:
        entry[LAST] = pages[needed - 1]
        following[pages[needed - 1]] = -1


@njit
def pages_needed(layouts, book, rows, layer):  # type: ignore[no-untyped-def]
    """Pages that one more exact slot in every head for each of `rows` takes."""
    extra = np.zeros(len(book), dtype=np.int64)
    needed = 0
    for row in rows:
        for head in range(book.shape[2]):
            if (book[row, layer, head, EXACT, COUNT] + extra[row]) % layouts[row, EXACT].slots == 0:
                needed += 1
        extra[row] += 1
    return needed
