"""Whether two runs computed the same model: how far their greedy continuations go together."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median_low

from harness.compare.resampling import interval_of_median


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far two runs go together.

    same: of `prompts`, how many continuations are equal to the end. middle: the median of the positions up to
    which they are equal, of `tokens`; interval: 95 % of that, by resampling prompts, None for fewer than two.
    """

    same: int
    prompts: int
    middle: int
    tokens: int
    interval: tuple[float, float] | None


def divergence(ours: Sequence[int], theirs: Sequence[int]) -> int:
    """How many leading tokens are the same: the position of the first difference, or the shorter one's length."""
    pairs = zip(ours, theirs, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(ours), len(theirs)))


def agreement(ours: Sequence[Sequence[int]], theirs: Sequence[Sequence[int]]) -> Agreement | None:
    """Compare continuations of the same prompts, shape (prompts, at most tokens) each; None where they are not."""
    if not ours or len(ours) != len(theirs):
        return None
    common = [divergence(a, b) for a, b in zip(ours, theirs, strict=True)]
    same = sum(list(a) == list(b) for a, b in zip(ours, theirs, strict=True))
    return Agreement(same, len(ours), median_low(common), max(map(len, ours)), interval_of_median(common))
