"""H2O: slots that were given much attention so far, and the latest ones."""

import torch

from backends.kvcompress.contracts import LayerView


class HeavyHitters:
    """Heavy-hitter oracle (Zhang et al. 2023, arXiv 2306.14048).

    Granularity: slots of each KV head; attention summed in float32 over the head's query heads, over the whole prompt
    and while decoding. Half of the budget goes to the latest tokens, as in the paper. Departure: where the prompt is
    read in chunks, evicted slots can't be given more by later chunks.
    """

    name = "h2o"
    attention: float | None = 1.0
    window = 0
    sample = 0
    vectors = False

    def score(self, view: LayerView) -> torch.Tensor:
        """[H, n]: what a slot was given; the latest stand above all that."""
        positions = view.slots.positions
        latest = positions > positions.max() - view.budget // 2
        return torch.where(latest, 2 * view.slots.attention.max() + 1 + positions, view.slots.attention)
