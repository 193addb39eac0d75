"""The store for CPUs: pages of one pool, read and written by compiled kernels."""

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from backends.kvcompress.combinations import Holder, check_layout
from backends.kvcompress.contracts import PoolFull, Slots
from backends.kvcompress.spec import KvSpec
from backends.kvcompress.store import compiled
from backends.kvcompress.store.codes import LANES
from backends.kvcompress.store.groups import most_pages
from backends.kvcompress.store.pages import COUNT, EXACT, FIELDS, LIVE, PACKED, UNSET
from backends.kvcompress.store.rows import RECORD, RowLayout, as_record, page_bytes, row_layout
from harness.core.errors import UsageError

log = logging.getLogger("kvcompress")
_COMPILES = "the first step of such a request compiles its kernel, or reads it from the cache folder"
_LINE = 64  # bytes of a cache line


class PagedStore:
    """Fulfils `contracts.KvStore`.

    layers, heads, group, head_dim: of the model; group: query heads of one KV head. exact_dtype: "f32" or "bf16", of
    exact slots. pool_bytes is rounded down to whole pages; memory is taken from the system as pages are first used.
    context_length: most tokens of a request. threads: of numba, over requests and KV heads. has_attention: whether
    attention sums are kept for a spec.

    In `read`, packed slots come before exact ones. Where `append` or `add_chunk` raises PoolFull nothing has changed;
    where `pack` does, some slots are packed and the others are still exact.
    """

    packed = True

    def __init__(
        self,
        layers: int,
        heads: int,
        group: int,
        head_dim: int,
        exact_dtype: str,
        pool_bytes: int,
        max_rows: int,
        context_length: int,
        threads: int,
        has_attention: Callable[[KvSpec], bool],
    ) -> None:
        if exact_dtype not in ("f32", "bf16"):
            raise UsageError(f"Keys and values are computed as f32 or bf16, not {exact_dtype}.")
        self._shape = (heads, group, head_dim)
        self._exact_dtype = exact_dtype
        self._has_attention = has_attention
        self._position_bytes = 2 if context_length < 2**16 else 4
        self.page_bytes = page_bytes(head_dim, self._position_bytes)
        self.pages = pool_bytes // self.page_bytes
        self._pool = _aligned_zeros(self.pages * self.page_bytes)
        self._following = np.full(self.pages, -1, dtype=np.int32)
        self._free = np.arange(self.pages - 1, -1, -1, dtype=np.int32)
        self._counters = np.zeros(1 + max_rows, dtype=np.int64)
        self._counters[0] = self.pages
        self._book = np.zeros((max_rows, layers, heads, 2, FIELDS), dtype=np.int32)
        self._open: dict[int, tuple[RowLayout, Any]] = {}
        self._layouts = np.zeros((max_rows, 2), dtype=RECORD)
        self._signs = compiled.rotation_signs(head_dim)
        self._unused = list(range(max_rows - 1, -1, -1))
        self._longest = context_length
        self._known: set[RowLayout] = set()
        self._scratch = np.zeros((threads, 0), dtype=np.float32)

    def layout_of(self, spec: KvSpec) -> RowLayout:
        """How slots of a request are stored; raises UsageError where heads of this size cannot be packed so."""
        heads, group, head_dim = self._shape
        check_layout(spec, Holder(head_dim, compiled=True))
        layout = row_layout(
            spec, heads, group, head_dim, self._exact_dtype, self._has_attention(spec), self._position_bytes
        )
        _check(spec, layout)
        return layout

    def open(self, spec: KvSpec) -> int:
        """Raises PoolFull where all rows are taken."""
        layout = self.layout_of(spec)
        if not self._unused:
            raise PoolFull
        kernel = self._kernel(layout, spec)
        exact = as_record(layout.exact, False, False)
        packed = as_record(layout.packed, layout.rotate, spec.granularity == "token")
        row = self._unused.pop()
        self._open[row] = (layout, kernel)
        self._layouts[row, EXACT] = exact
        self._layouts[row, PACKED] = packed
        self._book[row] = UNSET
        self._book[row, ..., COUNT : LIVE + 1] = 0
        return row

    def _kernel(self, layout: RowLayout, spec: KvSpec) -> Any:
        if layout not in self._known:
            self._known.add(layout)
            log.info("new here: quant=%s granularity=%s; %s", spec.quant, spec.granularity, _COMPILES)
        return compiled.attend_kernel(layout, len(self._scratch))

    def close(self, row: int) -> None:
        """Free everything of the row."""
        layout, _ = self._open.pop(row)
        nothing = np.zeros((layout.heads, self._longest + 1), dtype=np.bool_)
        for layer in range(self._book.shape[1]):
            compiled.keep(*self._tables(), layer, row, nothing)
        self._unused.append(row)

    def free_pages(self) -> int:
        """Pages that nobody holds."""
        return int(self._counters[0])

    def pages_for(self, spec: KvSpec, exact: int, packed: int) -> int:
        """Most pages that one (layer, head) of a request takes for so many slots of each kind."""
        layout = self.layout_of(spec)
        return -(-exact // layout.exact.slots) + most_pages(layout.packed, packed, spec.evict != "none")

    def append(
        self,
        layer: int,
        rows: torch.Tensor,
        positions: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
    ) -> None:
        """See `contracts.KvStore`."""
        arrays = rows.contiguous().numpy(), positions.contiguous().numpy(), _floats(keys), _floats(values)
        if len(rows) and not compiled.append(*self._tables(), layer, *arrays):
            raise PoolFull

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
        """See `contracts.KvStore`."""
        attention = np.empty((0, 0), np.float32) if given is None else _floats(given)
        stay = np.empty((0, 0), np.bool_) if kept is None else kept.contiguous().numpy()
        arrays = positions.contiguous().numpy(), _floats(keys), _floats(values), attention, stay
        if not compiled.add_chunk(*self._tables(), layer, row, *arrays):
            raise PoolFull

    def attend(
        self, layer: int, rows: torch.Tensor, queries: torch.Tensor, decay: torch.Tensor
    ) -> torch.Tensor:
        """See `contracts.KvStore`; a head that holds nothing gives zeros."""
        out = torch.empty(queries.shape)
        given, asked, decays, result = (
            rows.contiguous().numpy(),
            _floats(queries),
            _floats(decay),
            out.numpy(),
        )
        for kernel, chosen in self._by_kernel(given):
            if chosen is None:
                self._attend(kernel, layer, given, asked, decays, result)
            else:
                part = np.empty_like(asked[chosen])
                self._attend(kernel, layer, given[chosen], asked[chosen], decays[chosen], part)
                result[chosen] = part
        return out.to(queries.dtype)

    def _attend(self, kernel: Any, layer: int, *arrays: Any) -> None:
        rows, queries, decay, out = arrays
        needed = kernel(
            self._pool, self._following, self._book, layer, rows, queries, decay, out, self._scratch
        )
        if needed > self._scratch.shape[1]:
            self._scratch = np.zeros((len(self._scratch), needed + needed // 4), dtype=np.float32)
            self._attend(kernel, layer, *arrays)

    def _by_kernel(self, rows: np.ndarray) -> list[tuple[Any, np.ndarray | None]]:
        """Which rows (None: all) go through which kernel."""
        of_rows = [self._open[row][1] for row in rows.tolist()]
        first = of_rows[0]
        if all(each is first for each in of_rows):
            return [(first, None)]
        found = {id(each): each for each in of_rows}
        return [
            (each, np.array([i for i, of_row in enumerate(of_rows) if of_row is each]))
            for each in found.values()
        ]

    def read(self, layer: int, row: int, vectors: bool = True) -> Slots:
        """See `contracts.KvStore`."""
        layout, _ = self._open[row]
        most = max(self.counts(layer, row))
        held = most if vectors else 0
        keys = torch.zeros(layout.heads, held, layout.dim)
        values = torch.zeros(layout.heads, held, layout.dim)
        positions = torch.full((layout.heads, most), -1, dtype=torch.int64)
        packed = torch.zeros(layout.heads, most, dtype=torch.bool)
        given = torch.zeros(layout.heads, most)
        compiled.read(
            self._pool, self._following, self._book, self._layouts, layer, row, self._signs, vectors,
            keys.numpy(), values.numpy(), positions.numpy(), packed.numpy(), given.numpy(),
        )  # fmt: skip
        return Slots(keys, values, positions, packed, given)

    def add_attention(self, layer: int, row: int, decay: float, given: torch.Tensor) -> None:
        """See `contracts.KvStore`; nothing where no attention is kept for the row's spec."""
        compiled.add_given(
            self._pool, self._following, self._book, self._layouts, layer, row, decay, _floats(given)
        )

    def move(self, layer: int, row: int, keys: torch.Tensor, positions: torch.Tensor) -> None:
        """See `contracts.KvStore`."""
        compiled.move_keys(
            self._pool, self._following, self._book, self._layouts, layer, row, _floats(keys),
            positions.contiguous().numpy(),
        )  # fmt: skip

    def keep(self, layer: int, row: int, kept: torch.Tensor) -> None:
        """See `contracts.KvStore`."""
        compiled.keep(*self._tables(), layer, row, kept.contiguous().numpy())

    def pack(self, layer: int, row: int, first: int, end: int) -> None:
        """See `contracts.KvStore`."""
        packs = self._open[row][0].has_packed
        if packs and not compiled.pack(*self._tables(), layer, row, first, end, self._signs):
            raise PoolFull

    def counts(self, layer: int, row: int) -> list[int]:
        """Live slots of each KV head."""
        return [exact + packed for exact, packed in self._book[row, layer, :, :, LIVE].tolist()]

    def held_pages(self, row: int) -> int:
        """Pages that the row takes."""
        return int(self._counters[1 + row])

    def held_bytes(self, row: int) -> int:
        """Pages, slack included, their links and places on the free list, and the row's lists."""
        return (
            self.held_pages(row) * (self.page_bytes + 8)
            + self._book[row].nbytes
            + self._layouts[row].nbytes
            + 8
        )

    def used_bytes(self) -> int:
        """Of all rows."""
        return sum(self.held_bytes(row) for row in self._open)

    def _tables(self) -> tuple[np.ndarray, ...]:
        return self._pool, self._following, self._free, self._counters, self._book, self._layouts


def _floats(tensor: torch.Tensor) -> np.ndarray:
    if tensor.dtype is not torch.float32 or not tensor.is_contiguous():
        tensor = tensor.to(torch.float32).contiguous()
    return tensor.numpy()


def _check(spec: KvSpec, layout: RowLayout) -> None:
    if layout.packed.slots < LANES or layout.exact.slots < LANES:
        raise UsageError(
            f"kv.quant={spec.quant} with kv.granularity={spec.granularity} does not fit heads so small."
        )


def _aligned_zeros(size: int) -> np.ndarray:
    """uint8 [size] from the beginning of a cache line on."""
    whole = np.zeros(size + _LINE, dtype=np.uint8)
    first = -whole.ctypes.data % _LINE
    return whole[first : first + size]
