"""SnapKV: what the prompt's last queries attend to."""

import torch
from torch.nn import functional

from backends.kvcompress.contracts import LayerView
from backends.kvcompress.policies.slot_scores import by_position, window_attention


class SnapKv:
    """Observation window and pooling (Li et al. 2024, arXiv 2404.14469).

    Granularity: slots of each KV head; the mean over its query heads of the window's attention, averaged over
    neighbouring slots. The window's own slots stay. With `spread=pyramid` this is PyramidKV, with `spread=adakv`
    AdaKV's usual form. Departures: the paper keeps all that is generated; here, while decoding, the window is the
    attention of the latest queries, decayed by 1/WINDOW a query. Where slots were evicted before, neighbours are
    those that are left.
    """

    WINDOW = 64
    KERNEL = 5

    name = "snapkv"
    attention: float | None = 1 - 1 / WINDOW
    window = WINDOW
    sample = 0
    vectors = True

    def score(self, view: LayerView) -> torch.Tensor:
        """[H, n]."""
        positions = view.slots.positions
        if view.query_positions is None:
            return self._pooled(view.slots.attention, positions)
        own = positions >= view.query_positions[0]
        scores = self._pooled(window_attention(view).masked_fill_(own, 0), positions)
        return torch.where(own, 2.0 + positions, scores)  # no mean of probabilities exceeds 1

    def _pooled(self, scores: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        order = by_position(positions)
        smooth = functional.avg_pool1d(
            scores.gather(1, order)[:, None], self.KERNEL, stride=1, padding=self.KERNEL // 2
        )
        return torch.empty_like(scores).scatter_(1, order, smooth[:, 0])
