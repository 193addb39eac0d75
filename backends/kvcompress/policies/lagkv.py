"""LagKV: tokens that differ from those that follow, without any attention."""

import torch

from backends.kvcompress.contracts import LayerView
from backends.kvcompress.policies.slot_scores import by_position, newest_first


class LagKv:
    """Lag-relative information (Liang et al. 2025, arXiv 2504.04704).

    Granularity: slots of each KV head, ranked within parts of LAG slots: how widely a key's (and a value's)
    coordinates scatter after they were scaled by the range that each has in the part that follows. The last part and
    what is not whole stays. Departure: parts are made anew of the slots that are left at each eviction; the paper
    scores a part once, when the next one is there.
    """

    LAG = 128

    name = "lagkv"
    attention: float | None = None
    window = 0
    sample = 0
    vectors = True

    def score(self, view: LayerView) -> torch.Tensor:
        """[H, n] in [0, 1] for what is ranked; the newer, the higher above 1 for what stays."""
        slots = view.slots
        order = by_position(slots.positions)
        result = 1 + newest_first(slots.positions)
        for head, indices in enumerate(order):
            at = slots.positions[head, indices]
            indices = indices[(at >= view.sinks)]
            parts = len(indices) // self.LAG
            if parts < 2:
                continue
            whole = indices[: parts * self.LAG]
            keys, values = (
                self._scatter(vectors[head, whole].unflatten(0, (parts, self.LAG)).float())
                for vectors in (slots.keys, slots.values)
            )
            ranks = (keys + values).argsort(1).argsort(1) / self.LAG
            result[head, whole[: -self.LAG]] = ranks.flatten()
        return result

    def _scatter(self, vectors: torch.Tensor) -> torch.Tensor:
        """vectors [parts, LAG, D] -> [parts - 1, LAG], a softmax over the slots of each part but the last."""
        following = vectors[1:]
        low, high = following.amin(1, keepdim=True), following.amax(1, keepdim=True)
        scaled = (vectors[:-1] - low) / (high - low).clamp(min=torch.finfo(torch.float32).tiny)
        return scaled.std(-1).softmax(-1)
