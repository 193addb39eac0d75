"""The tensors that hold the slots of all requests (`store_torch`)."""

from dataclasses import dataclass

import torch

from backends.kvcompress.contracts import Slots

_BESIDE = 4 + 4 + 1  # bytes of a slot beside its key and value: position, attention, whether it is packed


def slot_bytes(head_dim: int, dtype: torch.dtype) -> int:
    """Of one slot, everything counted."""
    return 2 * head_dim * dtype.itemsize + _BESIDE


@dataclass(frozen=True, slots=True)
class Pool:
    """keys, values [slots, D]; positions int32, attention float32, packed bool [slots]."""

    keys: torch.Tensor
    values: torch.Tensor
    positions: torch.Tensor
    attention: torch.Tensor
    packed: torch.Tensor

    def read(self, where: torch.Tensor, there: torch.Tensor, vectors: bool) -> Slots:
        """The slots at `where` [H, n]; what is not `there` [H, n] is padding."""
        gone, read = ~there, where if vectors else where[:, :0]
        without = gone[:, : read.shape[1], None]
        return Slots(
            self.keys[read].float().masked_fill_(without, 0),
            self.values[read].float().masked_fill_(without, 0),
            self.positions[where].long().masked_fill_(gone, -1),
            self.packed[where] & there,
            self.attention[where].masked_fill_(gone, 0),
        )

    def copy(self, source: torch.Tensor, target: torch.Tensor) -> None:
        """Everything of the slots `source` to the slots `target`, which may overlap."""
        for held in (self.keys, self.values, self.positions, self.attention, self.packed):
            held[target] = held[source]


def empty_pool(slots: int, head_dim: int, dtype: torch.dtype, device: torch.device) -> Pool:
    """Zeros rather than whatever memory held: padding is multiplied by 0, which NaN survives."""
    return Pool(
        torch.zeros(slots, head_dim, dtype=dtype, device=device),
        torch.zeros(slots, head_dim, dtype=dtype, device=device),
        torch.zeros(slots, dtype=torch.int32, device=device),
        torch.zeros(slots, dtype=torch.float32, device=device),
        torch.zeros(slots, dtype=torch.bool, device=device),
    )
