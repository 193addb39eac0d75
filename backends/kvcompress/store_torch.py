"""The slots of all requests in plain torch: for CUDA, and for CPUs without the compiled store.

Packed slots are rounded by the reference quantiser (`quant`) and held as exact ones, so `packed` is false and the
memory figures count what is really held. The pool is a few tensors over all pages; a page is PAGE_SLOTS slots of one
(request, layer, KV head), and what a request holds is a table of page numbers on the host.
"""

import math

import numpy as np
import torch

from backends.kvcompress.contracts import PoolFull, Slots
from backends.kvcompress.quant.formats import Scales
from backends.kvcompress.quant.sharing import by_groups_of_tokens, group_numbers
from backends.kvcompress.quant.slots import check_layout, dequantise, quantise
from backends.kvcompress.spec import KvSpec
from backends.kvcompress.store_torch_tables import Row
from harness.core.errors import UsageError

PAGE_SLOTS = 16
_BESIDE = 4 + 4 + 1  # bytes of a slot beside its key and value: position, attention, whether it is packed


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
        self.page_bytes = PAGE_SLOTS * (2 * head_dim * dtype.itemsize + _BESIDE)
        self.pages = pool_bytes // self.page_bytes
        slots = self.pages * PAGE_SLOTS
        # Zeros rather than whatever memory held: padding is multiplied by 0, which NaN survives.
        self._keys = torch.zeros(slots, head_dim, dtype=dtype, device=device)
        self._values = torch.zeros(slots, head_dim, dtype=dtype, device=device)
        self._positions = torch.zeros(slots, dtype=torch.int32, device=device)
        self._attention = torch.zeros(slots, dtype=torch.float32, device=device)
        self._is_packed = torch.zeros(slots, dtype=torch.bool, device=device)
        self._free = list(range(self.pages - 1, -1, -1))
        self._rows: dict[int, Row] = {}
        self._fixed: dict[tuple[int, int, str], Scales] = {}

    def open(self, spec: KvSpec) -> int:
        """Raises UsageError where heads of this size cannot be packed as the spec says."""
        check_layout(spec, self.head_dim)
        if spec.share != "none":
            raise UsageError(f"kv.share={spec.share} is not held by this store. Use kv.share=none.")
        number = next(n for n in range(len(self._rows) + 1) if n not in self._rows)
        self._rows[number] = Row(spec, self.layers, self.heads)
        return number

    def close(self, row: int) -> None:
        """Free everything of the row."""
        closed = self._rows.pop(row)
        self._free += closed.all_pages()
        self._fixed = {key: value for key, value in self._fixed.items() if key[0] != row}

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
        self._keys[slots] = keys.to(self._keys.dtype)
        self._values[slots] = values.to(self._values.dtype)
        self._positions[slots] = positions.to(self.device, torch.int32)[:, None].expand(slots.shape)
        self._attention[slots] = 0
        self._is_packed[slots] = False

    def attend(
        self, layer: int, rows: torch.Tensor, queries: torch.Tensor, decay: torch.Tensor
    ) -> torch.Tensor:
        """See `contracts.KvStore`; a head that holds nothing gives zeros."""
        batch, query_heads, size = queries.shape
        held = [self._rows[number] for number in rows.tolist()]
        longest = max(int(row.counts[layer].max()) for row in held)
        where, there = self._places([row.places(layer, longest, PAGE_SLOTS) for row in held])
        grouped = queries.float().reshape(batch, self.heads, query_heads // self.heads, size)
        keys = self._keys[where].float()
        scores = grouped @ keys.transpose(-1, -2) * size**-0.5
        scores = scores.masked_fill(~there[:, :, None], torch.finfo(torch.float32).min)
        given = torch.softmax(scores, dim=-1) * there[:, :, None]
        values = self._values[where].float().masked_fill_(~there[..., None], 0)
        result = (given @ values).reshape(queries.shape).to(queries.dtype)
        decay = decay.to(self.device, torch.float32)
        recorded = there & ~torch.isnan(decay)[:, None, None]
        summed = decay[:, None, None] * self._attention[where] + given.sum(dim=2)
        self._attention[where[recorded]] = summed[recorded]
        return result

    def read(self, layer: int, row: int, vectors: bool = True) -> Slots:
        """See `contracts.KvStore`."""
        where, there = self._of_row(layer, row)
        gone = ~there
        read = where if vectors else where[:, :0]
        return Slots(
            self._keys[read].float().masked_fill_(gone[:, : read.shape[1], None], 0),
            self._values[read].float().masked_fill_(gone[:, : read.shape[1], None], 0),
            self._positions[where].long().masked_fill_(gone, -1),
            self._is_packed[where] & there,
            self._attention[where].masked_fill_(gone, 0),
        )

    def add_attention(self, layer: int, row: int, decay: float, given: torch.Tensor) -> None:
        """See `contracts.KvStore`."""
        where, there = self._of_row(layer, row)
        summed = decay * self._attention[where] + given.to(self.device, torch.float32)
        self._attention[where[there]] = summed[there]

    def keep(self, layer: int, row: int, kept: torch.Tensor) -> None:
        """Kept slots move up into the first pages, in their order."""
        where, there = self._of_row(layer, row)
        kept = kept.to(self.device) & there
        counts = kept.sum(dim=1)
        first = torch.arange(where.shape[1], device=self.device)[None, :] < counts[:, None]
        source, target = where[kept], where[first]
        for held in (self._keys, self._values, self._positions, self._attention, self._is_packed):
            held[target] = held[source]
        self._free += self._rows[row].shrink(layer, counts.cpu().numpy(), PAGE_SLOTS)

    def pack(self, layer: int, row: int, first: int, end: int) -> None:
        """Round the exact slots with first <= position < end through the reference quantiser, once."""
        spec = self._rows[row].spec
        where, there = self._of_row(layer, row)
        at = self._positions[where].long()
        wanted = there & ~self._is_packed[where] & (at >= first) & (at < end)
        if spec.quant == "none" or not wanted.any():
            return
        slots, heads, positions = where[wanted], wanted.nonzero()[:, 0], at[wanted]
        groups = torch.zeros_like(positions)
        if by_groups_of_tokens(spec):
            groups = group_numbers(heads, positions, spec.group)
            whole = groups >= 0
            slots, positions, groups = slots[whole], positions[whole], groups[whole]
        for kind, held in (("keys", self._keys), ("values", self._values)):
            fixed = self._fixed.get((row, layer, kind))
            quantised = quantise(spec, kind, held[slots].float(), positions, groups, fixed)
            held[slots] = dequantise(quantised).to(held.dtype)
            if spec.granularity == "tensor":
                self._fixed[row, layer, kind] = quantised.fitted
        self._is_packed[slots] = True

    def move(self, layer: int, row: int, keys: torch.Tensor, positions: torch.Tensor) -> None:
        """See `contracts.KvStore`."""
        where, there = self._of_row(layer, row)
        self._keys[where[there]] = keys.to(self._keys)[there]
        self._positions[where[there]] = positions.to(self._positions)[there]

    def counts(self, layer: int, row: int) -> torch.Tensor:
        """Live slots of each KV head: int64 [H], on the host."""
        return torch.from_numpy(self._rows[row].counts[layer].copy())

    def held_pages(self, row: int) -> int:
        """Pages that the row takes."""
        return len(self._rows[row].all_pages())

    def held_bytes(self, row: int) -> int:
        """Pages, slack included, and the row's table."""
        return self.held_pages(row) * self.page_bytes + self._rows[row].table_bytes()

    def used_bytes(self) -> int:
        """Of all rows."""
        return sum(self.held_bytes(row) for row in self._rows)

    def _of_row(self, layer: int, row: int) -> tuple[torch.Tensor, torch.Tensor]:
        held = self._rows[row]
        where, there = self._places([held.places(layer, int(held.counts[layer].max()), PAGE_SLOTS)])
        return where[0], there[0]

    def _places(self, of_rows: list[tuple[np.ndarray, np.ndarray]]) -> tuple[torch.Tensor, torch.Tensor]:
        """Slot numbers and whether they are held: [B, H, n] each."""
        where, there = zip(*of_rows, strict=True)
        return self._on_device(np.stack(where)), self._on_device(np.stack(there))

    def _on_device(self, array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(array).to(self.device)
