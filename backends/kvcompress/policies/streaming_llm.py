"""StreamingLLM: the first tokens and the latest ones."""

import torch

from backends.kvcompress.contracts import LayerView


class StreamingLlm:
    """Attention sinks and a sliding window (Xiao et al. 2023, arXiv 2309.17453).

    Granularity: whole tokens, the same ones in every layer and head. What the budget leaves beside `sinks` is the
    window, however small `recent` is. Departure: positions stay the original ones unless `reindex` is set; the paper
    numbers the slots within the cache.
    """

    name = "streaming_llm"
    attention: float | None = None
    window = 0
    sample = 0
    vectors = False

    def score(self, view: LayerView) -> torch.Tensor:
        """[H, n]: the later, the better."""
        return view.slots.positions.float()
