"""KeyDiff: keys that resemble no others."""

import torch
from torch.nn import functional

from backends.kvcompress.contracts import LayerView


class KeyDiff:
    """Distance from the average key (Park et al. 2025, arXiv 2504.15364).

    Granularity: slots of each KV head; the cosine between a key and the mean of the keys' directions.
    """

    name = "keydiff"
    attention: float | None = None
    window = 0
    sample = 0
    vectors = True

    def score(self, view: LayerView) -> torch.Tensor:
        """[H, n]: the less alike, the better."""
        directions = functional.normalize(view.slots.keys.float(), dim=-1)  # padding is zero and stays so
        anchor = functional.normalize(directions.sum(1, keepdim=True), dim=-1)
        return -(directions * anchor).sum(-1)
