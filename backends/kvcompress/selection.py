"""From a policy's scores to the slots that stay."""

from collections.abc import Sequence

import numpy as np
import torch

from backends.kvcompress import selection_compiled

FLOOR = 0.2  # of a head's even share, which AdaKV leaves to every head (Feng et al. 2024, arXiv 2407.11550)


def select(
    scores: torch.Tensor,
    positions: torch.Tensor,
    targets: Sequence[int],
    sinks: int,
    recent: int,
    seen: int,
    across_heads: bool,
) -> torch.Tensor:
    """Which slots stay: [H, n] bool, at most so many of each head, `targets` [H], or so many in all.

    scores, positions: [H, n], positions -1 for padding. sinks, recent: positions below `sinks` and from
    `seen - recent` on stay before all others; where a target is too small for both, first the sinks, then the
    latest. across_heads: the heads compete for the sum of the targets, and each keeps its protected ones and its best
    up to FLOOR of its target.
    """
    sinks = min(sinks, *targets)
    recent = min(recent, min(targets) - sinks)
    floors = [max(int(FLOOR * target), sinks + recent) for target in targets]
    choose = _compiled if positions.device.type == "cpu" else chosen
    return choose(scores.float(), positions, targets, floors, sinks, seen - recent, across_heads)


def chosen(
    scores: torch.Tensor,
    positions: torch.Tensor,
    targets: Sequence[int],
    floors: Sequence[int],
    sinks: int,
    latest: int,
    across_heads: bool,
) -> torch.Tensor:
    """What `select` returns, on any device. latest: the position from which on slots are protected."""
    held = positions >= 0
    heads, slots = positions.shape
    protected = held & ((positions < sinks) | (positions >= latest))
    order = scores.nan_to_num(nan=_LOWEST, posinf=_HIGHEST, neginf=_LOWEST)
    order = order.masked_fill(protected, torch.inf).masked_fill(~held, -torch.inf)
    if not across_heads:
        return _best_of_each(order, targets) & held
    order = order.masked_fill(_best_of_each(order, floors) & held, torch.inf)
    return _best(order.reshape(1, -1), sum(targets)).reshape(heads, slots) & held


def _compiled(
    scores: torch.Tensor,
    positions: torch.Tensor,
    targets: Sequence[int],
    floors: Sequence[int],
    sinks: int,
    latest: int,
    across_heads: bool,
) -> torch.Tensor:
    kept = np.zeros(positions.shape, np.bool_)
    selection_compiled.select(
        scores.contiguous().numpy(),
        positions.contiguous().numpy(),
        np.array(targets),
        np.array(floors),
        sinks,
        latest,
        across_heads,
        kept,
    )
    return torch.from_numpy(kept)


_HIGHEST = torch.finfo(torch.float32).max
_LOWEST = torch.finfo(torch.float32).min


def _best_of_each(order: torch.Tensor, counts: Sequence[int]) -> torch.Tensor:
    """[H, n] -> bool, so many highest of each head."""
    return torch.cat([_best(row[None], count) for row, count in zip(order, counts, strict=True)])


def _best(order: torch.Tensor, count: int) -> torch.Tensor:
    """[R, n] -> bool, the `count` highest of each row."""
    best = torch.zeros_like(order, dtype=torch.bool)
    if count >= order.shape[1]:
        return ~best
    return best.scatter_(1, order.topk(count, dim=1, sorted=False).indices, True)
