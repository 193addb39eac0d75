"""The slots of all requests in plain torch: for CUDA, and for CPUs without the compiled store.

Packed slots are rounded by the reference quantiser (`quant`) and held as exact ones, so `packed` is false and the
memory figures count what is really held. The pool is a few tensors over all pages; a page is PAGE_SLOTS slots of one
(request, layer, KV head), and what a request holds is a table of page numbers on the host.
"""

import math
from dataclasses import replace

import numpy as np
import torch

from backends.kvcompress.combinations import Holder, check_layout
from backends.kvcompress.contracts import PoolFull, Slots
from backends.kvcompress.quant.formats import Scales
from backends.kvcompress.quant.minicache import lower_of
from backends.kvcompress.quant.sharing import by_groups_of_tokens, group_numbers
from backends.kvcompress.quant.slots import dequantise, quantise
from backends.kvcompress.spec import KvSpec
from backends.kvcompress.store_torch_pool import empty_pool, slot_bytes
from backends.kvcompress.store_torch_shared import SharedSlots, joined, share
from backends.kvcompress.store_torch_tables import Row

PAGE_SLOTS = 16


class TorchStore:
    """Fulfils `contracts.KvStore`. pool_bytes is rounded down to whole pages, all of them allocated at once.

    Slots that a store holds of one head are in the order in which they came. Keys and values are held as `dtype`;
    attention is computed in float32 and given back in the dtype of the queries.
    """

    packed = False

    def __init__(
        self,
        layers: int,
        heads: int,
        head_dim: int,
        pool_bytes: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.layers, self.heads, self.head_dim, self.device = layers, heads, head_dim, device
        self.page_bytes = PAGE_SLOTS * slot_bytes(head_dim, dtype)
        self.pages = pool_bytes // self.page_bytes
        self._pool = empty_pool(self.pages * PAGE_SLOTS, head_dim, dtype, device)
        self._free = list(range(self.pages - 1, -1, -1))
        self._rows: dict[int, Row] = {}
        self._fixed: dict[tuple[int, int, str], Scales] = {}
        self._shared: dict[tuple[int, int], SharedSlots] = {}

    def open(self, spec: KvSpec) -> int:
        """Raises UsageError where heads of this size cannot be packed as the spec says."""
        check_layout(spec, Holder(self.head_dim, compiled=False))
        number = next(n for n in range(len(self._rows) + 1) if n not in self._rows)
        self._rows[number] = Row(spec, self.layers, self.heads)
        return number

    def close(self, row: int) -> None:
        """Free everything of the row."""
        closed = self._rows.pop(row)
        self._free += closed.all_pages()
        self._fixed = {key: value for key, value in self._fixed.items() if key[0] != row}
        self._shared = {key: value for key, value in self._shared.items() if key[0] != row}

    def free_pages(self) -> int:
        """Pages that nobody holds."""
        return len(self._free)

    def pages_for(self, spec: KvSpec, exact: int, packed: int) -> int:
        """Packed slots take as much as exact ones, and lie among them."""
        return math.ceil((exact + packed) / PAGE_SLOTS)

    def append(
        self,
        layer: int,
        rows: torch.Tensor,
        positions: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
    ) -> None:
        """See `contracts.KvStore`; where it raises PoolFull nothing has changed."""
        numbers, counts = np.unique(rows.cpu().numpy(), return_counts=True)
        tokens = dict(zip(numbers.tolist(), counts.tolist(), strict=True))
        needed = sum(self._rows[n].pages_more(layer, more, PAGE_SLOTS) for n, more in tokens.items())
        if needed > len(self._free):
            raise PoolFull
        host_rows = rows.cpu().numpy()
        where = np.empty((len(host_rows), self.heads), dtype=np.int64)
        for number, more in tokens.items():
            where[host_rows == number] = self._rows[number].extend(layer, more, PAGE_SLOTS, self._free).T
        slots = self._on_device(where)
        self._pool.keys[slots] = keys.to(self._pool.keys)
        self._pool.values[slots] = values.to(self._pool.values)
        self._pool.positions[slots] = positions.to(self._pool.positions)[:, None].expand(slots.shape)
        self._pool.attention[slots] = 0
        self._pool.packed[slots] = False

    def add_chunk(
        self,
        layer: int,
        row: int,
        positions: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        given: torch.Tensor | None,
        kept: torch.Tensor | None,
    ) -> None:
        """See `contracts.KvStore`; for a moment all of the chunk is held."""
        before = torch.from_numpy(self._rows[row].counts[layer].copy())
        self.append(layer, torch.full((len(positions),), row), positions, keys, values)
        where, _ = self._of_row(layer, row)
        column = before.to(self.device)[:, None] + torch.arange(len(positions), device=self.device)
        if given is not None:
            self._pool.attention[where.gather(1, column)] = given[:, -len(positions) :].to(
                self._pool.attention
            )
        if kept is not None:
            stays = torch.ones_like(where, dtype=torch.bool)
            new = kept[:, -len(positions) :].to(self.device)
            self._keep(layer, row, stays.scatter_(1, column, new))

    def attend(
        self, layer: int, rows: torch.Tensor, queries: torch.Tensor, decay: torch.Tensor
    ) -> torch.Tensor:
        """See `contracts.KvStore`; a head that holds nothing gives zeros."""
        asked, numbers, decay = queries.float(), rows.tolist(), decay.to(self.device, torch.float32)
        result = torch.empty_like(asked)
        whole = [i for i, row in enumerate(numbers) if (row, layer) not in self._shared]
        if whole:
            where, there = self._places(layer, [numbers[i] for i in whole])
            keys = self._pool.keys[where].float()
            values = self._pool.values[where].float().masked_fill_(~there[..., None], 0)
            result[whole], given = weighed(asked[whole], keys, values, there)
            recorded = there & ~torch.isnan(decay[whole])[:, None, None]
            summed = decay[whole][:, None, None] * self._pool.attention[where] + given
            self._pool.attention[where[recorded]] = summed[recorded]
        for i in set(range(len(numbers))) - set(whole):  # one by one: right, not fast
            slots = self.read(layer, numbers[i])
            there = slots.positions >= 0
            result[i : i + 1], given = weighed(
                asked[i : i + 1], slots.keys[None], slots.values[None], there[None]
            )
            if not torch.isnan(decay[i]):
                self.add_attention(layer, numbers[i], float(decay[i]), given[0])
        return result.to(queries.dtype)

    def read(self, layer: int, row: int, vectors: bool = True) -> Slots:
        """See `contracts.KvStore`; shared slots come first."""
        own, shared = self._pool.read(*self._of_row(layer, row), vectors), self._shared.get((row, layer))
        return own if shared is None else joined(shared.read(self._pool, vectors), own)

    def add_attention(self, layer: int, row: int, decay: float, given: torch.Tensor) -> None:
        """See `contracts.KvStore`."""
        given, shared = given.to(self.device, torch.float32), self._shared.get((row, layer))
        if shared is not None:
            apart = shared.attention.shape[1]
            summed = decay * shared.attention + given[:, :apart]
            self._shared[row, layer] = replace(shared, attention=summed)
            given = given[:, apart:]
        where, there = self._of_row(layer, row)
        summed = decay * self._pool.attention[where] + given[:, : where.shape[1]]
        self._pool.attention[where[there]] = summed[there]

    def keep(self, layer: int, row: int, kept: torch.Tensor) -> None:
        """Kept slots move up into the first pages, in their order. Raises ValueError where layers share slots."""
        if self._rows[row].spec.share != "none":
            raise ValueError("slots that layers share are not dropped one by one")
        self._keep(layer, row, kept.to(self.device))

    def _keep(self, layer: int, row: int, kept: torch.Tensor) -> None:
        where, there = self._of_row(layer, row)
        kept = kept[:, : where.shape[1]] & there
        counts = kept.sum(dim=1)
        first = torch.arange(where.shape[1], device=self.device)[None, :] < counts[:, None]
        self._pool.copy(where[kept], where[first])
        self._free += self._rows[row].shrink(layer, counts.cpu().numpy(), PAGE_SLOTS)

    def pack(self, layer: int, row: int, first: int, end: int) -> None:
        """Round the exact slots with first <= position < end through the reference quantiser, once.

        Where layers share, the lower one of a pair waits for the upper one, which merges both before.
        """
        if self._rows[row].spec.share == "none":
            self._quantise(layer, row, first, end)
            return
        lower = lower_of(layer, self.layers)
        if lower is not None:
            self._merge(lower, layer, row, first, end)
            self._quantise(lower, row, first, end)
        if layer + 1 == self.layers or lower_of(layer + 1, self.layers) is None:
            self._quantise(layer, row, first, end)

    def _merge(self, lower: int, upper: int, row: int, first: int, end: int) -> None:
        """Nothing is evicted where layers share, so that all heads hold the same tokens, in the order they came."""
        below, above = self._of_row(lower, row)[0], self._of_row(upper, row)[0]
        known = self._shared.get((row, upper))
        if known is not None:
            below = below[:, ~torch.isin(below[0], known.owners[0])]
        at = [self._pool.positions[slots[0]] for slots in (below, above)]
        due_below, due_above = (
            (positions >= first) & (positions < end) & ~self._pool.packed[slots[0]]
            for positions, slots in zip(at, (below, above), strict=True)
        )
        # A layer may hold a token that the other one does not hold yet, or holds quantised.
        due_below &= torch.isin(at[0], at[1][due_above])
        due_above &= torch.isin(at[1], at[0][due_below])
        if not due_above.any():
            return
        self._shared[row, upper], alike = share(self._pool, known, below[:, due_below], above[:, due_above])
        stays = torch.ones_like(due_above)
        stays[due_above.nonzero()[:, 0][alike]] = False
        self._keep(upper, row, stays.expand(self.heads, -1))

    def _quantise(self, layer: int, row: int, first: int, end: int) -> None:
        spec = self._rows[row].spec
        where, there = self._of_row(layer, row)
        at = self._pool.positions[where].long()
        wanted = there & ~self._pool.packed[where] & (at >= first) & (at < end)
        if spec.quant == "none" or not wanted.any():
            return
        slots, heads, positions = where[wanted], wanted.nonzero()[:, 0], at[wanted]
        groups = torch.zeros_like(positions)
        if by_groups_of_tokens(spec):
            groups = group_numbers(heads, positions, spec.group)
            whole = groups >= 0
            slots, positions, groups = slots[whole], positions[whole], groups[whole]
        for kind, held in (("keys", self._pool.keys), ("values", self._pool.values)):
            fixed = self._fixed.get((row, layer, kind))
            quantised = quantise(spec, kind, held[slots].float(), positions, groups, fixed)
            held[slots] = dequantise(quantised).to(held.dtype)
            if spec.granularity == "tensor":
                self._fixed[row, layer, kind] = quantised.fitted
        self._pool.packed[slots] = True

    def move(self, layer: int, row: int, keys: torch.Tensor, positions: torch.Tensor) -> None:
        """See `contracts.KvStore`."""
        where, there = self._of_row(layer, row)
        self._pool.keys[where[there]] = keys.to(self._pool.keys)[there]
        self._pool.positions[where[there]] = positions.to(self._pool.positions)[there]

    def counts(self, layer: int, row: int) -> list[int]:
        """Live slots of each KV head."""
        shared = self._shared.get((row, layer))
        more = shared.owners.shape[1] if shared else 0
        return [count + more for count in self._rows[row].counts[layer].tolist()]

    def held_pages(self, row: int) -> int:
        """Pages that the row takes."""
        return len(self._rows[row].all_pages())

    def held_bytes(self, row: int) -> int:
        """Pages, slack included, the row's table, and what it shares beside the pool."""
        shared = sum(held.nbytes for (of, _), held in self._shared.items() if of == row)
        return self.held_pages(row) * self.page_bytes + self._rows[row].table_bytes() + shared

    def used_bytes(self) -> int:
        """Of all rows."""
        return sum(self.held_bytes(row) for row in self._rows)

    def _of_row(self, layer: int, row: int) -> tuple[torch.Tensor, torch.Tensor]:
        where, there = self._places(layer, [row])
        return where[0], there[0]

    def _places(self, layer: int, rows: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """Slot numbers and whether they are held: [B, H, n] each."""
        held = [self._rows[row] for row in rows]
        longest = max(int(row.counts[layer].max()) for row in held)
        where, there = zip(*(row.places(layer, longest, PAGE_SLOTS) for row in held), strict=True)
        return self._on_device(np.stack(where)), self._on_device(np.stack(there))

    def _on_device(self, array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(array).to(self.device)


def weighed(
    queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, there: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention of queries [B, Q, D] over keys and values [B, H, n, D] where `there` [B, H, n]; values are zero
    elsewhere. Also what each slot was given, summed over the query heads of its KV head: [B, H, n]."""
    batch, query_heads, size = queries.shape
    grouped = queries.reshape(batch, keys.shape[1], query_heads // keys.shape[1], size)
    scores = grouped @ keys.transpose(-1, -2) * size**-0.5
    scores = scores.masked_fill(~there[:, :, None], torch.finfo(torch.float32).min)
    given = torch.softmax(scores, dim=-1) * there[:, :, None]
    return (given @ values).reshape(queries.shape), given.sum(dim=2)
