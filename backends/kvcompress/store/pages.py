# mypy: allow-untyped-defs
"""The free list, and the lists of pages of each (row, layer, KV head) and region (exact or packed slots).

book: int32 [rows, layers, heads, 2, FIELDS], of each list its first and last page (-1: none), its number of slots,
how many of them live, and, where all the row's packed slots in a layer share a scale, that of keys and of values
(scale << 16 | zero, bfloat16 bits; UNSET before there is one). following: int32 [pages], the next page of the same
list. free: int32 [pages], a stack. counters: int64 [1 + rows], how many are on it, then how many pages each row
holds. All pages of a list but the last are full.
"""

import numpy as np

from backends.kvcompress.store.inner import inlined

FIRST, LAST, COUNT, LIVE, KEY_SCALE, VALUE_SCALE = 0, 1, 2, 3, 4, 5
FIELDS = 6
UNSET = -1
EXACT, PACKED = 0, 1


@inlined
def take_page(entry, following, free, counters, row):
    """A free page, of which there is one, behind the last one of a list."""
    counters[0] -= 1
    counters[1 + row] += 1
    page = free[counters[0]]
    following[page] = -1
    if entry[FIRST] == -1:
        entry[FIRST] = page
    else:
        following[entry[LAST]] = page
    entry[LAST] = page


@inlined
def give_page(page, free, counters, row):
    """A page of a row back to the free list."""
    free[counters[0]] = page
    counters[0] += 1
    counters[1 + row] -= 1


@inlined
def next_slot(layout, following, free, counters, book, row, layer, head, region):
    """The page and the place in it of one more slot, already counted; page -1 where the pool is full."""
    entry = book[row, layer, head, region]
    within = entry[COUNT] % layout.slots
    if within == 0:
        if counters[0] == 0:
            return -1, 0
        take_page(entry, following, free, counters, row)
    entry[COUNT] += 1
    entry[LIVE] += 1
    return entry[LAST], within


@inlined
def list_pages(entry, following, layout, pages):
    """Write the numbers of a list's pages; returns how many."""
    page, found = entry[FIRST], 0
    for _ in range((entry[COUNT] + layout.slots - 1) // layout.slots):
        pages[found] = page
        page = following[page]
        found += 1
    return found


@inlined
def shorten(entry, following, free, counters, row, layout, pages, count):
    """Let the list, whose pages are given, hold its first `count` slots; the rest of its pages is free."""
    held = (entry[COUNT] + layout.slots - 1) // layout.slots
    needed = (count + layout.slots - 1) // layout.slots
    for number in range(held - 1, needed - 1, -1):
        give_page(pages[number], free, counters, row)
    entry[COUNT] = count
    entry[LIVE] = count
    if needed == 0:
        entry[FIRST] = -1
        entry[LAST] = -1
    else:
        entry[LAST] = pages[needed - 1]
        following[pages[needed - 1]] = -1


@inlined
def pages_needed(layouts, book, rows, layer):
    """Pages that one more exact slot in every head for each of `rows` takes."""
    extra = np.zeros(len(book), dtype=np.int64)
    needed = 0
    for row in rows:
        for head in range(book.shape[2]):
            if (book[row, layer, head, EXACT, COUNT] + extra[row]) % layouts[row, EXACT].slots == 0:
                needed += 1
        extra[row] += 1
    return needed
