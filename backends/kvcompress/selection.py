"""From a policy's scores to the slots that stay."""

import torch

FLOOR = 0.2  # of a head's even share, which AdaKV leaves to every head (Feng et al. 2024, arXiv 2407.11550)


def select(
    scores: torch.Tensor,
    positions: torch.Tensor,
    target: int,
    sinks: int,
    recent: int,
    seen: int,
    across_heads: bool,
) -> torch.Tensor:
    """Which slots stay: [H, n] bool, at most `target` of each head, or of a head on average.

    scores, positions: [H, n], positions -1 for padding. sinks, recent: positions below `sinks` and from
    `seen - recent` on stay before all others; where the target is too small for both, first the sinks, then the
    latest. across_heads: the heads compete for target * H slots, and each keeps its protected ones and its best up to
    FLOOR of the target.
    """
    held = positions >= 0
    heads, slots = positions.shape
    sinks = min(sinks, target)
    recent = min(recent, target - sinks)
    protected = held & ((positions < sinks) | (positions >= seen - recent))
    order = scores.float().nan_to_num(nan=_LOWEST, posinf=_HIGHEST, neginf=_LOWEST)
    order = order.masked_fill(protected, torch.inf).masked_fill(~held, -torch.inf)
    if not across_heads:
        return _best(order, target) & held
    floor = max(int(FLOOR * target), sinks + recent)
    order = order.masked_fill(_best(order, floor) & held, torch.inf)
    return _best(order.reshape(1, -1), target * heads).reshape(heads, slots) & held


_HIGHEST = torch.finfo(torch.float32).max
_LOWEST = torch.finfo(torch.float32).min


def _best(order: torch.Tensor, count: int) -> torch.Tensor:
    """[R, n] -> bool, the `count` highest of each row."""
    best = torch.zeros_like(order, dtype=torch.bool)
    if count >= order.shape[1]:
        return ~best
    return best.scatter_(1, order.topk(count, dim=1, sorted=False).indices, True)
