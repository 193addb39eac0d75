"""The slots of a layer in another order: a store may order them anew with every call that changes them."""

import torch


def in_order(of_slots: torch.Tensor, positions: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """What `of_slots` [H, n] says of the slots at `positions` [H, n], for those at `wanted` [H, m].

    A position stands once in a head; -1 is padding and gets zero.
    """
    last = int(max(positions.max(), wanted.max())) if positions.numel() and wanted.numel() else -1
    table = torch.zeros(len(of_slots), last + 2, dtype=of_slots.dtype, device=of_slots.device)
    table.scatter_(1, positions + 1, of_slots)
    table[:, 0] = 0
    return table.gather(1, wanted + 1)
