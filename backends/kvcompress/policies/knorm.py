"""Keys of small norm attract attention."""

import torch

from backends.kvcompress.contracts import LayerView


class KeyNorm:
    """L2 norm of the keys (Devoto et al. 2024, arXiv 2406.11430).

    Granularity: slots of each KV head. Departure: the paper leaves the first two layers whole; here every layer has
    its share of the budget.
    """

    name = "knorm"
    attention: float | None = None
    window = 0
    sample = 0
    vectors = True

    def score(self, view: LayerView) -> torch.Tensor:
        """[H, n]: the smaller the key, the better."""
        return -torch.linalg.vector_norm(view.slots.keys, dim=-1, dtype=torch.float32)
