"""H2O's sum divided by the number of queries that added to it."""

import torch

from backends.kvcompress.contracts import LayerView


class AttentionRate:
    """Mean attention per query that saw the slot: H2O (Zhang et al. 2023, arXiv 2306.14048) normalised by lifetime.

    Granularity: slots of each KV head. Departure from H2O: a sum favours old slots, which a rate does not, so that no
    share of the budget is set aside for the latest ones (beside `recent`).
    """

    name = "h2o_rate"
    attention: float | None = 1.0
    window = 0
    sample = 0
    vectors = False

    def score(self, view: LayerView) -> torch.Tensor:
        """[H, n]: attention per query since the slot's own."""
        lifetime = (view.seen - view.slots.positions).clamp(min=1)
        return view.slots.attention / lifetime
