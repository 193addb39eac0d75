"""How many pages of the pool a request may take at most, between two passes and within one."""

from dataclasses import replace
from functools import lru_cache

from backends.kvcompress.budgets import Allowance, Shape, most_pages, slots_within
from backends.kvcompress.combinations import leaves_holes
from backends.kvcompress.contracts import KvStore
from backends.kvcompress.spec import KvSpec


class Needs:
    """For a model of that shape whose prompts are read `chunk` tokens at a time.

    Raises UsageError where a budget in bytes holds nothing.
    """

    def __init__(self, store: KvStore, shape: Shape, chunk: int) -> None:
        self._shape = shape
        self._all = shape.layers * shape.heads
        self._chunk = chunk
        # The same few settings and lengths come again and again; a step asks for each request in it.
        self._pages_for = lru_cache(4096)(store.pages_for)
        self._within = lru_cache(256)(lambda bytes_, spec: slots_within(bytes_, spec, store, shape, 0))

    def slots(self, spec: KvSpec, prompt: int, tokens: int) -> int:
        """Slots of a KV head, on average over heads and layers, that its budget leaves when `tokens` were seen."""
        bytes_ = spec.budget.bytes
        most = None if bytes_ is None else self._within(bytes_, spec)
        even = replace(spec, spread="uniform")
        return min(tokens, Allowance(even, prompt, self._shape, most, None).slots(0, tokens))

    def held(self, spec: KvSpec, prompt: int, tokens: int) -> int:
        """Most pages between two passes until `tokens` were seen, the reading of the prompt included."""
        if spec.evict == "none" or leaves_holes(spec):  # of what is evicted, nothing may be free
            pages = self._all * self._head(spec, tokens)
        else:
            bytes_ = spec.budget.bytes
            most = None if bytes_ is None else self._within(bytes_, spec)
            allowed = Allowance(spec, prompt, self._shape, most, None)  # which heads get more does not matter
            layers = range(self._shape.layers) if spec.spread == "pyramid" else [0] * self._shape.layers
            pages = self._shape.heads * sum(
                self._head(spec, min(tokens, allowed.slots(layer, tokens))) for layer in layers
            )
        if spec.spread in ("adakv", "retrieval"):  # heads differ, each may leave half a page of either kind
            pages += self._all * (1 if spec.quant == "none" else 2)
        if spec.when == "prompt":
            pages = max(pages, self._all * self._pages_for(spec, min(tokens, prompt), 0))
        return pages

    def passing(self, spec: KvSpec, tokens: int) -> int:
        """Pages beyond `held` while a pass appends so many tokens, or a chunk of them.

        Layer by layer, one request after another: what stays of a chunk is added as exact slots before it is packed,
        and packed slots are written before the exact ones are dropped. `TorchStore` adds the whole chunk before the
        layer is shrunk. The compiled store needs none of it for exact slots that are evicted; they are counted alike.
        """
        if spec.evict == "none" and spec.quant == "none":
            return 0
        return self._shape.heads * (self._pages_for(spec, min(tokens, self._chunk), 0) + 1)

    def growth(self, spec: KvSpec, prompt: int, seen: int, new: int, held: int) -> int:
        """Most pages by which a pass that appends `new` tokens lets a row of `held` pages and `seen` tokens grow."""
        limit = max(0, self.held(spec, prompt, seen + new) - held)
        return min(self._all * self._pages_for(spec, new, 0), limit)

    def _head(self, spec: KvSpec, slots: int) -> int:
        return most_pages(self._pages_for, spec, slots)
