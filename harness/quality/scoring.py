"""Which of several options a model holds for the most probable, and what a list of right and wrong answers says.

An option's score is Σ log p of its tokens given the prompt, by prompt log-probabilities: the same route as
perplexity's. Where the options of one item differ in their number of tokens the mean over tokens is compared
instead, since a sum favours the shorter; elsewhere the sum, which is the probability of the whole option.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.core.errors import EndpointError
from harness.core.tokenizer import Tokenizer

# Takes ids; returns log p of each given those before it (the first means nothing).
LogProbs = Callable[[Sequence[int]], Sequence[float | None]]

_Z = 1.959963984540054  # two-sided 95 % of the normal distribution


@dataclass(frozen=True, slots=True)
class Choice:
    """One item. ids: the prompt, the same for every option. options: each one's ids; the right one is the first."""

    ids: tuple[int, ...]
    options: tuple[tuple[int, ...], ...]


def choice(tokenizer: Tokenizer, before: Sequence[int], stem: str, options: Sequence[str]) -> Choice:
    """`before` + `stem` as the prompt, to be followed by one of `options` (the right one first).

    Stem and option are encoded together, as a text is; the prompt ends where the encodings of all options still agree
    with that of the stem alone, so that a token over the seam belongs to the option.
    """
    alone = tokenizer.encode(stem)
    whole = [tokenizer.encode(stem + option) for option in options]
    shared = 0
    while all(
        shared < len(ids) - 1 and ids[shared : shared + 1] == alone[shared : shared + 1] for ids in whole
    ):
        shared += 1
    return Choice((*before, *alone[:shared]), tuple(tuple(ids[shared:]) for ids in whole))


def longest_of(choices: Sequence[Choice]) -> int:
    """Tokens of the longest prompt with its longest option, and the one that is generated beside them."""
    return max(len(item.ids) + max(map(len, item.options)) + 1 for item in choices)


def margin(item: Choice, log_probs: LogProbs) -> float:
    """Score of the right option − the best other one, in nats: above 0 where the right one is chosen.

    Raises EndpointError where the server's log-probabilities are incomplete.
    """
    even = len({len(option) for option in item.options}) == 1
    scores = []
    for option in item.options:
        values = log_probs((*item.ids, *option))[len(item.ids) : len(item.ids) + len(option)]
        found = np.array([np.nan if value is None else value for value in values], dtype=np.float64)
        if len(found) != len(option) or not np.isfinite(found).all():
            raise EndpointError(
                "The server's prompt log-probabilities are incomplete (one finite number per prompt token is needed)."
            )
        scores.append(float(found.sum() if even else found.mean()))
    return scores[0] - max(scores[1:])


def margins(
    choices: Sequence[Choice],
    log_probs: LogProbs,
    on_item: Callable[[int, int], None] = lambda done, of: None,
) -> list[float]:
    """`margin` of every item; `on_item(done, of)` is told the progress."""
    found = []
    for done, item in enumerate(choices):
        on_item(done, len(choices))
        found.append(margin(item, log_probs))
    on_item(len(choices), len(choices))
    return found


def option_shares(
    name: str,
    choices: Sequence[Choice],
    found: Sequence[float],
    chunk: int | None,
    groups: Sequence[int] | None = None,
) -> dict[str, Any]:
    """The keys `name`, `name_interval`, … of docs/quality.md, from the margins `found`.

    An item is right where its margin is above 0; equal scores tell nothing, so they are wrong. groups: ascending,
    where several choices share a prompt and so make one item, whose value is their mean. chunk: tokens that the
    engine is fed at once, None where that is not known.
    """
    right = [float(value > 0) for value in found]
    told = list(found)
    if groups is not None:
        right, told = (
            [float(np.mean(part)) for part in _grouped(values, groups)] for values in (right, told)
        )
    chance = float(np.mean([1 / len(item.options) for item in choices]))
    read = None if chunk is None else float(np.mean([cached(len(item.ids), chunk) for item in choices]))
    return shares(name, right, chance) | {f"{name}_log_probs": told, f"{name}_cached": read}


def _grouped(values: Sequence[float], groups: Sequence[int]) -> list[list[float]]:
    found: dict[int, list[float]] = {}
    for value, group in zip(values, groups, strict=True):
        found.setdefault(group, []).append(value)
    return list(found.values())


def cached(prompt: int, chunk: int) -> float:
    """Share of a prompt's tokens that an option's first token reads from the cache, as earlier chunks wrote it."""
    return (prompt - 1) // chunk * chunk / prompt


def shares(name: str, right: Sequence[float], chance: float) -> dict[str, Any]:
    """What `right` (by item, 0 to 1) says: the share, its interval, and whether that excludes mere guessing."""
    interval = wilson(sum(right), len(right))
    return {
        name: float(np.mean(right)),
        f"{name}_interval": interval,
        f"{name}_chance": chance,
        f"{name}_above_chance": interval[0] > chance,
        f"{name}_items": len(right),
        f"{name}_right": list(right),
    }


def wilson(hits: float, of: int) -> list[float]:
    """95 % interval of a share (Wilson 1927).

    For items that are shares themselves (three facts found of four) it is wide rather than wrong: a value between 0
    and 1 varies at most as much as one that is either (Bhatia and Davis 2000).
    """
    middle = (hits + _Z**2 / 2) / (of + _Z**2)
    half = _Z / (of + _Z**2) * math.sqrt(max(0.0, hits * (of - hits) / of) + _Z**2 / 4)
    # Exactly 0 and 1 at the ends, where rounding would leave a little that looks like more than chance.
    return [middle - half if hits > 0 else 0.0, middle + half if hits < of else 1.0]
