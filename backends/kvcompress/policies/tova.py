"""TOVA: what the last query attends to."""

import torch

from backends.kvcompress.contracts import LayerView


class LastQuery:
    """Token omission via attention (Oren et al. 2024, arXiv 2401.06104).

    Granularity: tokens of each layer, the attention of the last query averaged over all heads. Departure: where heads
    hold different tokens (`spread=adakv`), the average is over those that hold one.
    """

    name = "tova"
    attention: float | None = 0.0
    window = 0
    sample = 0
    vectors = False

    def score(self, view: LayerView) -> torch.Tensor:
        """[H, n], the same for a token in every head."""
        attention, places = view.slots.attention, view.slots.positions + 1
        sums, counts = torch.zeros(2, int(places.max()) + 1, device=attention.device)
        sums.index_add_(0, places.flatten(), attention.flatten())
        counts.index_add_(0, places.flatten(), torch.ones_like(attention).flatten())
        return (sums / counts.clamp(min=1))[places]
