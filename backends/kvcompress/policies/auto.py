"""auto: this project's own choice, found by measurement (docs/kv-auto.md)."""

import torch

from backends.kvcompress.contracts import LayerView


class Auto:
    """Mean attention per query, estimated from a few queries of each chunk; meant for `spread=retrieval`.

    Granularity: slots of each KV head. The score is H2O's (Zhang et al. 2023, arXiv 2306.14048) divided by the
    slot's lifetime, which a sum would favour; a sample of each chunk's queries estimates it as well as all do, and
    costs a thirtieth. The latest WINDOW tokens, of which few queries could say anything, stay before all others.
    What recall needs is in no score that was tried: heads that copy from far back keep everything instead
    (`model.retrieval`; RazorAttention, Tang et al. 2024, arXiv 2407.15891, whose other heads keep a window and one
    slot that stands for the rest).
    """

    WINDOW = 128
    _ABOVE = 1 << 20  # any rate; such numbers and their neighbours are different in float32

    name = "auto"
    attention: float | None = 1.0
    window = 0
    sample = 8
    vectors = False

    def score(self, view: LayerView) -> torch.Tensor:
        """[H, n]: attention per query since the slot's own; above it the latest, by position."""
        positions = view.slots.positions
        rate = view.slots.attention / (view.seen - positions)
        latest = positions >= view.seen - min(self.WINDOW, view.budget // 4)
        # No rate exceeds the query heads of a KV head, times what a sampled query stands for.
        return torch.where(latest, positions + self._ABOVE, rate)
