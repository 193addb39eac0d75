# mypy: allow-untyped-defs
"""Pages whose slots share the scales of their channels: chunks and blocks given out, slots dropped by a mark.

A group of tokens takes whole chunks; where the page ends within it, the next page begins with a copy of its block.
"""

from functools import lru_cache

import numpy as np

from backends.kvcompress.store.codes import LANES
from backends.kvcompress.store.inner import inlined
from backends.kvcompress.store.layout import Layout
from backends.kvcompress.store.memory import is_dead, kill
from backends.kvcompress.store.pages import COUNT, FIRST, LAST, LIVE, give_page, list_pages, take_page


@inlined
def mark(layout, pool, following, free, counters, entry, row, kept):
    """Drop the living slots of a list where kept is false; pages without any that live are free."""
    pages = np.empty((entry[COUNT] + layout.slots - 1) // layout.slots, np.int64)
    held = list_pages(entry, following, layout, pages)
    in_last = entry[COUNT] - (held - 1) * layout.slots
    at, left, last = 0, 0, -1
    for number in range(held):
        start, lives = pages[number] * layout.page_bytes, 0
        for slot in range(layout.slots if number < held - 1 else in_last):
            if is_dead(layout, pool, start, slot):
                continue
            if kept[at]:
                lives += 1
            else:
                kill(layout, pool, start, slot)
            at += 1
        if lives == 0:
            give_page(pages[number], free, counters, row)
            continue
        if last >= 0:
            following[pages[last]] = pages[number]
        else:
            entry[FIRST] = pages[number]
        last = number
        left += 1
    _end(layout, following, entry, pages, left, last, last == held - 1, in_last)
    entry[LIVE] = 0
    for number in range(at):
        entry[LIVE] += kept[number]


@inlined
def _end(layout, following, entry, pages, left, last, ends_as_before, in_last):
    """Let a list end with its page number `last`, having `left` pages."""
    if left == 0:
        entry[FIRST] = entry[LAST] = -1
        entry[COUNT] = 0
        return
    following[pages[last]] = -1
    entry[LAST] = pages[last]
    entry[COUNT] = (left - 1) * layout.slots + (in_last if ends_as_before else layout.slots)


@inlined
def _blocks_used(layout, pool, entry, within):
    """Of the last page of a list, which has `within` chunks."""
    if within == 0:
        return 0
    return pool[entry[LAST] * layout.page_bytes + layout.block_numbers_at + within - 1] + 1


@inlined
def has_room(layout, pool, counters, entry):
    """Whether one more group of tokens finds place."""
    chunks = layout.slots // LANES
    within = entry[COUNT] % layout.slots // LANES
    here = 0
    if within and _blocks_used(layout, pool, entry, within) < layout.page_blocks:
        here = chunks - within
    more = max(0, layout.group_chunks - here)
    return counters[0] >= (more + chunks - 1) // chunks


@inlined
def next_chunk(layout, pool, following, free, counters, entry, row, continues):
    """Page, chunk in it, and whether its block is a new one that wants its scales, for the next chunk of a group.

    continues: whether the group has a chunk before this one. There is room (`has_room`). Slots are dead until they
    are filled.
    """
    within = entry[COUNT] % layout.slots // LANES
    used = _blocks_used(layout, pool, entry, within)
    if within and not continues and used == layout.page_blocks:
        for slot in range(within * LANES, layout.slots):  # no block is left for a group that begins here
            kill(layout, pool, entry[LAST] * layout.page_bytes, slot)
            entry[COUNT] += 1
        within = 0
    fresh = within == 0 or not continues
    if within == 0:
        take_page(entry, following, free, counters, row)
        used = 0
        start = entry[LAST] * layout.page_bytes
        for byte in range(start + layout.key_scales_at, start + layout.page_bytes):
            pool[byte] = 0  # what lay here before may be no number once it is read as a scale
    start = entry[LAST] * layout.page_bytes
    pool[start + layout.block_numbers_at + within] = used if fresh else used - 1
    for slot in range(within * LANES, (within + 1) * LANES):
        kill(layout, pool, start, slot)
    entry[COUNT] += LANES
    return start, within, fresh


def most_pages(layout: Layout, slots: int, evicts: bool) -> int:
    """Pages that so many packed slots of one head take at most.

    Where slots that share scales are dropped one by one, those that stay keep their pages: twice as many are reckoned
    with as a full list takes.
    """
    if not layout.by_tokens:
        return -(-slots // layout.slots)
    pages = _pages_of_groups(layout, slots // layout.share)
    return min(slots, 2 * pages) if evicts else pages


@lru_cache(4096)
def _pages_of_groups(layout: Layout, groups: int) -> int:
    """Asked for at every step, of few different numbers of groups."""
    chunks, blocks, each = layout.slots // LANES, layout.page_blocks, layout.group_chunks
    pages = within = used = 0
    for _ in range(groups):
        if within and used == blocks:
            within = 0
        used += 1
        for _ in range(each):
            if within == 0:
                pages, used = pages + 1, 1
            within = (within + 1) % chunks
    return pages
