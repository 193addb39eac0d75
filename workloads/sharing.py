"""How much of a prompt an ideal prefix cache would hold: what it shares with an earlier one of the plan."""

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import replace

from harness.core.requests import PlannedRequest


def with_shared_prefixes(requests: Iterable[PlannedRequest]) -> tuple[PlannedRequest, ...]:
    """The requests with the tags `shared_prefix_tokens` and `shared_prefix_share` (of the prompt, 0 to 1).

    In sorted order the prompt with the longest common prefix is a neighbour, so each is compared with two.
    """
    seen: list[tuple[int, ...]] = []
    tagged = []
    for request in requests:
        place = bisect_left(seen, request.prompt_ids)
        shared = max(
            (common_prefix(request.prompt_ids, ids) for ids in seen[max(place - 1, 0) : place + 1]), default=0
        )
        seen.insert(place, request.prompt_ids)
        share = round(shared / len(request.prompt_ids), 4)
        tags = {**request.tags, "shared_prefix_tokens": shared, "shared_prefix_share": share}
        tagged.append(replace(request, tags=tags))
    return tuple(tagged)


def common_prefix(left: tuple[int, ...], right: tuple[int, ...]) -> int:
    """How many leading ids two prompts have in common."""
    for i, (a, b) in enumerate(zip(left, right, strict=False)):
        if a != b:
            return i
    return min(len(left), len(right))
