"""How one request's slots are stored: the layouts of its exact and its packed ones, for compiled code."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from backends.kvcompress.quant.formats import format_of
from backends.kvcompress.spec import KvSpec
from backends.kvcompress.store.codes import Codes
from backends.kvcompress.store.layout import Layout
from backends.kvcompress.store.static import static

_OF_CODES = ("bits", "dim", "size", "rows", "width", "bytes", "chunk", "codebook", "zeros", "float8", "table")
_NUMBERS = (
    "dim", "width", "zeros", "has_attention", "position_bytes", "page_bytes", "slots", "values_at", "attention_at",
    "positions_at", "key_scales_at", "value_scales_at", "by_tensor", "by_tokens", "channel_values", "key_groups",
    "value_groups", "group_dims", "share", "group_chunks", "block_bytes", "page_blocks", "blocks_at",
    "block_numbers_at",
)  # fmt: skip
_CODES = np.dtype([(name, np.int64) for name in _OF_CODES])
RECORD = np.dtype(
    [
        *((name, np.int64) for name in (*_NUMBERS, "rotate", "across_heads")),
        ("keys", _CODES),
        ("values", _CODES),
    ]
)


def as_record(layout: Layout, rotate: bool, across_heads: bool) -> np.ndarray:
    """For the functions that are compiled once for all layouts. across_heads: whether a token has one scale for all
    its heads, which each of them stores."""
    numbers = [int(getattr(layout, name)) for name in _NUMBERS]
    codes = [tuple(int(getattr(each, name)) for name in _OF_CODES) for each in (layout.keys, layout.values)]
    return np.array((*numbers, int(rotate), int(across_heads), *codes), dtype=RECORD)


@static
@dataclass(frozen=True)
class RowLayout:
    """How the slots of one request are stored. heads: KV heads; group: query heads of each.

    has_packed: whether slots can be packed at all (else `packed` is never used). rotate: whether packed heads are
    rotated.
    """

    heads: int
    group: int
    exact: Layout
    packed: Layout
    has_packed: bool
    rotate: bool

    @property
    def dim(self) -> int:
        """Values of a head."""
        return self.exact.dim

    @property
    def width(self) -> int:
        """Floats that a vector of a head takes in scratch memory."""
        return max(self.exact.width, self.packed.width)

    @property
    def page_slots(self) -> int:
        """Most slots of a page."""
        return max(self.exact.slots, self.packed.slots)

    @property
    def part(self) -> int:
        """Where the sums of one block are in a thread's scratch memory, in floats: behind five times [group, width],
        the queries plain and turned, sums of exact and of packed values, queries with the channels' scales."""
        return 5 * self.group * self.width

    @property
    def totals(self) -> int:
        """Where the sums of the queries are, plain and with the channels' zeros: 2 * [group]."""
        return self.part + self.group * self.width

    @property
    def peaks(self) -> int:
        """Where the largest scores so far are, [group], and behind them the sums of weights."""
        return self.totals + 2 * self.group

    @property
    def offsets(self) -> int:
        """Where weights times zeros are summed: [group, kinds]."""
        return self.peaks + 2 * self.group

    @property
    def weights(self) -> int:
        """Where the weights of one page are: [group, slots]."""
        return self.offsets + self.group * self.packed.weight_groups

    @property
    def scaled(self) -> int:
        """Where they are times the scales: [group, kinds, slots]."""
        return self.weights + self.group * self.page_slots

    @property
    def scratch(self) -> int:
        """Floats that one thread needs beside its scores."""
        return self.scaled + self.group * self.packed.weight_groups * self.page_slots


def _together(group: int) -> int:
    """Query heads that are computed together, of `group` that read the same KV head."""
    return group if group <= 4 else max((n for n in (2, 3, 4) if group % n == 0), default=group)


def page_bytes(dim: int, position_bytes: int) -> int:
    """32 slots of 8-bit codes with a scale each for key and value: of the sizes of whole cache lines near it the one
    that loses least for heads of 64, 96 and 128 values, on average over exact slots, int8, int4 and keys in int8
    beside values in int4. For heads of 48 and 256 another one may lose less."""
    return 32 * (2 * dim + 4 + position_bytes)


def row_layout(
    spec: KvSpec, heads: int, group: int, dim: int, exact: str, has_attention: bool, position_bytes: int
) -> RowLayout:
    """Of a request; exact: "f32" or "bf16"."""
    one_scale = "slot" if spec.granularity in ("token", "token_head") else spec.granularity
    common: dict[str, Any] = {
        "has_attention": has_attention, "position_bytes": position_bytes,
        "page_bytes": page_bytes(dim, position_bytes), "queries": _together(group),
    }  # fmt: skip
    floats = Codes(exact, 32 if exact == "f32" else 16, dim)
    plain = Layout(floats, floats, sharing="none", share=1, **common)
    if spec.quant == "none":
        return RowLayout(heads, group, plain, plain, False, False)
    packed = Layout(
        _codes(spec, "keys", dim), _codes(spec, "values", dim), sharing=one_scale, share=spec.group, **common
    )
    return RowLayout(heads, group, plain, packed, True, spec.rotate)


def _codes(spec: KvSpec, kind: str, dim: int) -> Codes:
    form = format_of(spec, kind)
    return Codes(f"codebook{form.bits}" if form.codebook else form.quant, form.bits, dim)
