"""How much of its prompts a plan shares within itself."""

from collections.abc import Iterable, Sequence
from itertools import pairwise


def shareable_tokens(prompts: Iterable[Sequence[int]], earlier: Iterable[Sequence[int]] = ()) -> int:
    """Most prompt tokens that a prefix cache can find over these prompts in any order.

    At first it holds nothing but the prompts `earlier` (a warm-up has the system prompt in common).

    Every token but the first of its kind at its place in the trie of all prompts can be found: the sum of all
    lengths less the number of the trie's nodes. Neighbours in sorted order share exactly what is no new node.
    The answers are not counted: with real history an earlier answer is in a later prompt and can be found
    too.
    """
    before = [tuple(prompt) for prompt in earlier]
    return _repeated([*before, *(tuple(prompt) for prompt in prompts)]) - _repeated(before)


def _repeated(prompts: Iterable[tuple[int, ...]]) -> int:
    ordered = sorted(prompts)
    return sum(_common(one, other) for one, other in pairwise(ordered))


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    for position, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return position
    return min(len(one), len(other))
