"""Which pages of the pool one request holds, per layer and KV head, on the host (`store_torch`)."""

import math

import numpy as np

from backends.kvcompress.spec import KvSpec


class Row:
    """One request. counts: live slots, int64 [layers, H]; pages are full but for the last one of each head."""

    def __init__(self, spec: KvSpec, layers: int, heads: int) -> None:
        self.spec = spec
        self.counts = np.zeros((layers, heads), dtype=np.int64)
        self._pages: list[list[list[int]]] = [[[] for _ in range(heads)] for _ in range(layers)]

    def pages_more(self, layer: int, tokens: int, page_slots: int) -> int:
        """Pages that `tokens` more slots of every head take from the pool."""
        pages = self._pages[layer]
        return sum(
            max(0, math.ceil((int(count) + tokens) / page_slots) - len(pages[head]))
            for head, count in enumerate(self.counts[layer])
        )

    def extend(self, layer: int, tokens: int, page_slots: int, free: list[int]) -> np.ndarray:
        """Slot numbers in the pool for `tokens` more of every head, [H, tokens]; pages are taken from `free`."""
        before = self.counts[layer].copy()
        for head, pages in enumerate(self._pages[layer]):
            while len(pages) * page_slots < before[head] + tokens:
                pages.append(free.pop())
        self.counts[layer] += tokens
        within = before[:, None] + np.arange(tokens)
        return self._slots(layer, within, page_slots)

    def places(self, layer: int, longest: int, page_slots: int) -> tuple[np.ndarray, np.ndarray]:
        """Slot numbers [H, longest] and which of them are held; what is not names slot 0."""
        within = np.broadcast_to(np.arange(longest), (len(self.counts[layer]), longest))
        there = within < self.counts[layer][:, None]
        return np.where(there, self._slots(layer, within, page_slots), 0), there

    def shrink(self, layer: int, counts: np.ndarray, page_slots: int) -> list[int]:
        """Hold the first counts[h] slots of each head; the pages that are empty now."""
        freed: list[int] = []
        for head, pages in enumerate(self._pages[layer]):
            needed = math.ceil(int(counts[head]) / page_slots)
            freed += pages[needed:]
            del pages[needed:]
        self.counts[layer] = counts
        return freed

    def all_pages(self) -> list[int]:
        """Of all layers and heads."""
        return [page for layer in self._pages for head in layer for page in head]

    def table_bytes(self) -> int:
        """4 bytes a page, 8 a count."""
        return 4 * len(self.all_pages()) + self.counts.nbytes

    def _slots(self, layer: int, within: np.ndarray, page_slots: int) -> np.ndarray:
        pages = self._pages[layer]
        table = np.zeros((len(pages), max(1, max(len(head) for head in pages))), dtype=np.int64)
        for head, held in enumerate(pages):
            table[head, : len(held)] = held
        column = np.minimum(within // page_slots, table.shape[1] - 1)
        return np.take_along_axis(table, column, axis=1) * page_slots + within % page_slots
