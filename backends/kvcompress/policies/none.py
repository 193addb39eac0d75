"""Keep everything."""

import torch

from backends.kvcompress.contracts import LayerView


class KeepAll:
    """No eviction: a request without a budget is never asked."""

    name = "none"
    attention: float | None = None
    window = 0
    sample = 0
    vectors = False

    def score(self, view: LayerView) -> torch.Tensor:
        """All slots alike."""
        return torch.zeros(view.slots.positions.shape, device=view.slots.positions.device)
