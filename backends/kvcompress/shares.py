"""How a pool is shared among requests that may keep more or less: one level for all, what each keeps at it.

Max-min fairness with weights: at a level, everybody gets so many slots times its weight, but never less than its
floor (what it asked for, times its weight) nor more than all its tokens. So the longest give up first, and who has
few tokens keeps everything. Below the floors, all of them fall by the same factor; that happens only where prompts
were taken to be more concentrated than they were found to be when they had been read.
"""

from collections.abc import Callable
from dataclasses import replace

from backends.kvcompress.needs import Needs
from backends.kvcompress.request import Request
from backends.kvcompress.scheduling import Scheduling
from backends.kvcompress.spec import Budget, KvSpec

FLOORS = 16  # the level at which everybody has its floor; level n below has n / FLOORS of it
_STEP = 16  # slots between two levels above


def budget_at(level: int, request: Request, needs: Needs, scheduling: Scheduling) -> KvSpec:
    """What a request may keep at this level; where it asked for a budget."""
    most = request.most_tokens
    asked = needs.slots(request.asked, request.prompt, most)
    weight = scheduling.weight(request.kind, request.prompt, request.breadth)
    if level <= FLOORS:
        slots = max(asked * scheduling.least, asked * weight * level / FLOORS)
    else:
        slots = weight * max(asked, (level - FLOORS) * _STEP)
    return replace(request.asked, budget=Budget(None, max(1, min(most, int(slots))), None))


def highest_level(fits: Callable[[int], bool], most_tokens: int, scheduling: Scheduling) -> int | None:
    """The highest at which all fit; None where they do not even at the lowest. most_tokens: of the longest."""
    if not fits(0):
        return None
    low, high = 0, FLOORS + int(most_tokens / scheduling.least) // _STEP + 1
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low
