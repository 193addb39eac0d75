"""Which numbers share a scale, for slots of one layer of one request, given as one list over its KV heads.

    tensor      all of the layer (keys and values apart); fitted by the first slots that are packed and fixed from
                then on, since nothing is requantised: later values beyond it saturate
    token       one token: its values in all heads that pack it at the same time
    token_head  one token in one head
    group       `group` consecutive values of one token in one head
    channel     one channel of `group` tokens of one head, taken in the order of their positions
    kivi        keys as "channel", values as "token_head" (Liu et al., "KIVI", arXiv:2402.02750, whose values are
                grouped along the channels as well)

With "channel" and "kivi" only whole groups of tokens are packed; the latest few wait.
"""

import torch

from backends.kvcompress.spec import KvSpec


def by_groups_of_tokens(spec: KvSpec) -> bool:
    """Whether tokens share a scale, so that slots are packed by whole groups."""
    return spec.granularity in ("channel", "kivi")


def group_numbers(heads: torch.Tensor, positions: torch.Tensor, group: int) -> torch.Tensor:
    """int64 [N]: for slots of these heads at these positions the number of the group that packs them, -1 for those
    which fill none. Groups are numbered by head, then by position; heads and positions are int64 [N]."""
    order = torch.argsort(positions, stable=True)
    order = order[torch.argsort(heads[order], stable=True)]
    numbers = torch.full_like(positions, -1)
    filled = 0
    for count in torch.bincount(heads).tolist():
        whole = count // group
        numbers[order[: whole * group]] = filled + torch.arange(whole * group, device=order.device) // group
        order, filled = order[count:], filled + whole
    return numbers


def shares(
    granularity: str, group: int, positions: torch.Tensor, groups: torch.Tensor, head_dim: int
) -> tuple[torch.Tensor, int]:
    """int64 [N, D], which scale each value uses, and how many there are. groups: see `group_numbers`."""
    slots = torch.arange(len(positions), device=positions.device)[:, None]
    channels = torch.arange(head_dim, device=positions.device)[None, :]
    if granularity == "tensor":
        return torch.zeros_like(slots * channels), 1
    if granularity == "token":
        _, token = torch.unique(positions, return_inverse=True)
        return (token[:, None] + 0 * channels), int(token.max()) + 1 if len(token) else 0
    if granularity == "token_head":
        return slots + 0 * channels, len(positions)
    if granularity == "group":
        in_head = head_dim // group
        return slots * in_head + channels // group, len(positions) * in_head
    return groups[:, None] * head_dim + channels, (int(groups.max()) + 1 if len(groups) else 0) * head_dim


def granularity_of(spec: KvSpec, kind: str) -> str:
    """Of "keys" or "values"."""
    if spec.granularity == "kivi":
        return "channel" if kind == "keys" else "token_head"
    return spec.granularity
