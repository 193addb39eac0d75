"""Any slots: what a method has to beat."""

import torch

from backends.kvcompress.contracts import LayerView

_MIX = 0x9E3779B97F4A7C15 - (1 << 64)


class Random:
    """Slots drawn evenly, in each KV head by itself.

    The draw is a hash of layer, head and position (the finaliser of SplitMix64), so that a request loses the same
    slots whatever its chunks are and whoever runs beside it.
    """

    name = "random"
    attention: float | None = None
    window = 0
    sample = 0
    vectors = False

    def score(self, view: LayerView) -> torch.Tensor:
        """[H, n] in [0, 1)."""
        positions = view.slots.positions
        heads = torch.arange(len(positions), device=positions.device)[:, None]
        mixed = (positions + (heads << 32) + (view.layer << 48) + 1) * _MIX
        for shift, factor in ((30, 0xBF58476D1CE4E5B9 - (1 << 64)), (27, 0x94D049BB133111EB - (1 << 64))):
            mixed = (mixed ^ _shifted(mixed, shift)) * factor
        return _shifted(mixed ^ _shifted(mixed, 31), 40) / (1 << 24)


def _shifted(numbers: torch.Tensor, bits: int) -> torch.Tensor:
    """To the right, zeros moving in."""
    return (numbers >> bits) & ((1 << (64 - bits)) - 1)
