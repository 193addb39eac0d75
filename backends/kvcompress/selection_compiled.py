"""`selection.select` on a CPU, compiled: some twenty small torch calls a layer cost more than all they compute.

Decorated here rather than in a function: numba's cache never finds again what closes over another compiled function.
"""

from pathlib import Path

import numba
import numpy as np

from backends.kvcompress.compiled_cache import use_cache_folder

use_cache_folder(Path(__file__))


@numba.njit(cache=True, error_model="numpy")
def _keep_best(order, count, kept):  # type: ignore[no-untyped-def]
    """`kept` is set true for the `count` best of order [n]."""
    if count >= len(order):
        kept[:] = True
        return
    if count <= 0:
        return
    least = np.partition(order, len(order) - count)[len(order) - count]
    left = count
    for slot in range(len(order)):
        if order[slot] > least:
            kept[slot] = True
            left -= 1
    for slot in range(len(order)):
        if left > 0 and order[slot] == least:
            kept[slot] = True
            left -= 1


@numba.njit(cache=True, error_model="numpy")
def select(scores, positions, targets, floors, sinks, latest, across, kept):  # type: ignore[no-untyped-def]
    """Arrays as `selection.select` has them.

    scores: float32. targets, floors: int64 [H]. latest: the position from which on slots are protected. kept [H, n]:
    false, and afterwards the result. Of equal scores those in front stay.
    """
    heads, slots = positions.shape
    highest, infinite = np.finfo(np.float32).max, np.float32(np.inf)
    order = np.empty((heads, slots), np.float32)
    for head in range(heads):
        for slot in range(slots):
            score, position = scores[head, slot], positions[head, slot]
            if position < 0:
                order[head, slot] = -infinite
            elif position < sinks or position >= latest:
                order[head, slot] = infinite
            else:
                order[head, slot] = -highest if np.isnan(score) else min(max(score, -highest), highest)
    for head in range(heads):
        _keep_best(order[head], floors[head] if across else targets[head], kept[head])
    if across:
        for head in range(heads):
            for slot in range(slots):
                if kept[head, slot] and positions[head, slot] >= 0:
                    order[head, slot] = infinite
        kept[:] = False
        _keep_best(order.reshape(-1), targets.sum(), kept.reshape(-1))
    for head in range(heads):
        for slot in range(slots):
            kept[head, slot] &= positions[head, slot] >= 0
