"""Which slots stay, for any scores."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.kvcompress.selection import FLOOR, chosen, select


@given(
    counts=st.lists(st.integers(0, 30), min_size=1, max_size=4),
    target=st.integers(0, 32),
    sinks=st.integers(0, 6),
    recent=st.integers(1, 12),
    across=st.booleans(),
    strange=st.sampled_from([None, 0.0, float("nan"), float("inf"), float("-inf")]),
    seed=st.integers(0, 1000),
)
@settings(max_examples=150, deadline=None)
def test_the_best_stay_after_the_protected(
    counts: list[int], target: int, sinks: int, recent: int, across: bool, strange: float | None, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    seen, heads = 36, len(counts)
    positions = torch.full((heads, max(counts)), -1)
    for head, count in enumerate(counts):
        positions[head, :count] = torch.randperm(seen, generator=generator)[:count]
    scores = torch.rand(positions.shape, generator=generator)
    if strange is not None:
        scores[torch.rand(positions.shape, generator=generator) < 0.1] = strange
    kept = select(scores, positions, [target] * heads, sinks, recent, seen, across)
    assert not kept[positions < 0].any()
    if strange is None and len(scores.unique()) == scores.numel():  # no ties, for which any choice is right
        limits = [max(int(FLOOR * target), min(sinks + recent, target))] * heads
        first = min(sinks, target)
        last = seen - min(recent, target - first)
        assert torch.equal(kept, chosen(scores, positions, [target] * heads, limits, first, last, across))
    held, stays = positions >= 0, kept.sum(1)
    if across:
        assert stays.sum() == min(target * heads, sum(counts))
        assert all(
            n >= min(count, int(FLOOR * target)) for n, count in zip(stays.tolist(), counts, strict=True)
        )
    else:
        assert stays.tolist() == [min(target, count) for count in counts]
    first = min(sinks, target)
    last = seen - min(recent, target - first)
    protected = held & ((positions < first) | (positions >= last))
    assert kept[protected].all()
    free = held & ~protected
    for head in range(heads):
        lost = scores[head][free[head] & ~kept[head]].nan_to_num(nan=-9e9, posinf=9e9, neginf=-9e9)
        stay = scores[head][free[head] & kept[head]].nan_to_num(nan=-9e9, posinf=9e9, neginf=-9e9)
        assert not len(lost) or not len(stay) or lost.max() <= stay.min()


def test_heads_compete_for_the_layers_budget() -> None:
    positions = torch.arange(100).expand(2, -1)
    scores = torch.stack((torch.rand(100) + 2, torch.rand(100)))
    kept = select(scores, positions, [40, 40], 2, 2, 100, True)
    assert kept.sum(1).tolist() == [72, int(FLOOR * 40)]
