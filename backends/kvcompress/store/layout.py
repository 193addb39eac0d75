"""Where everything lies in a page: offsets in bytes, for one way of storing a slot.

A page holds slots of one (row, layer, KV head) in eights ("chunks"), the width of a vector register of floats.
Keys lie transposed within a chunk, so that a product with a query runs over eight slots at once and no sum across
a register is needed; values lie slot by slot, so that a weighted sum runs over eight values at once. A code of
fewer than 8 bits shares its byte with those of other dims of the same slot (d, d + D/2 …), never with a neighbour in
the register: unpacking is a shift and a mask, with nothing to reorder.

3-bit codes are a plane of 2 bits, laid out as 2-bit codes, and behind it a plane of 1 bit.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from backends.kvcompress.spec import BITS, KvSpec
from backends.kvcompress.store.static import static

LANES = 8
_SUMS = 12  # vectors; AVX2 has 16 registers
TABLES = ("int8", "fp8", "even", "codebook4", "codebook3", "codebook2")
_PARTS = {32: 1, 16: 1, 8: 1, 4: 2, 3: 8, 2: 4}


@static
@dataclass(frozen=True)
class Layout:
    """One format. codec: how a value is read (see `codecs`). dim: values of a head; width: with padding to whole
    registers. key_scale, value_scale: what shares one ("none", "slot"). zeros: whether an offset lies behind each
    scale. has_attention: whether slots carry their attention sum. position_bytes: 2 or 4. queries: query heads that
    are computed together.
    """

    codec: str
    bits: int
    dim: int
    key_scale: str
    value_scale: str
    zeros: bool
    has_attention: bool
    position_bytes: int
    page_bytes: int
    queries: int

    @property
    def size(self) -> int:
        """Bytes of a code that shares its byte with none."""
        return max(8, self.bits) // 8

    @property
    def parts(self) -> int:
        """Codes of one value's dims that share a byte."""
        return _PARTS[self.bits]

    @property
    def width(self) -> int:
        """dim, padded so that every part is whole registers."""
        unit = LANES * self.parts
        return -(-self.dim // unit) * unit

    @property
    def rows(self) -> int:
        """Dims of one part."""
        return self.width // self.parts

    @property
    def key_parts(self) -> int:
        """Key values that are unpacked at once; at least two, so that two sums run side by side."""
        return max(2, self.parts)

    @property
    def key_rows(self) -> int:
        """Steps in which all dims of a key are unpacked."""
        return self.width // self.key_parts

    @property
    def score_sums(self) -> int:
        """Vectors that sum the scores of eight slots: two halves for each query."""
        return 2 * self.queries

    @property
    def blocks(self) -> int:
        """Vectors of each part of a value that are summed at once: as many sums as registers can hold."""
        whole = self.rows // LANES
        most = max(1, _SUMS // (self.queries * self.parts))
        return max(n for n in range(1, whole + 1) if whole % n == 0 and n <= most)

    @property
    def key_chunk(self) -> int:
        """Bytes of the keys of eight slots."""
        return self.width * self.bits

    @property
    def value_bytes(self) -> int:
        """Bytes of the value of one slot."""
        return self.width * self.bits // 8

    def _scale_bytes(self, kind: str) -> int:
        return (4 if self.zeros else 2) if kind == "slot" else 0

    @property
    def codebook(self) -> bool:
        """Lloyd-Max levels."""
        return self.codec.startswith("codebook")

    @property
    def float8(self) -> bool:
        """An e4m3 float."""
        return self.codec == "fp8"

    @property
    def table(self) -> int:
        """Which of `levels.TABLES` a code is looked up in; -1: a float itself."""
        return -1 if self.bits > 8 else TABLES.index(self.codec if self.codec in TABLES else "even")

    @property
    def scaled_keys(self) -> bool:
        """Whether each key has a scale of its own."""
        return self.key_scale == "slot"

    @property
    def scaled_values(self) -> bool:
        """Whether each value has a scale of its own."""
        return self.value_scale == "slot"

    @property
    def slot_bytes(self) -> int:
        """Everything a slot takes."""
        scales = self._scale_bytes(self.key_scale) + self._scale_bytes(self.value_scale)
        return 2 * self.value_bytes + scales + self.position_bytes + 4 * self.has_attention

    @property
    def slots(self) -> int:
        """Of one page; 0 where not even eight fit."""
        return self.page_bytes // (LANES * self.slot_bytes) * LANES

    @property
    def values_at(self) -> int:
        """Offset of the first value."""
        return self.slots * self.value_bytes

    @property
    def attention_at(self) -> int:
        """Offset of the float32 attention sums."""
        return 2 * self.values_at

    @property
    def positions_at(self) -> int:
        """Offset of the positions."""
        return self.attention_at + 4 * self.has_attention * self.slots

    @property
    def key_scales_at(self) -> int:
        """Offset of the keys' bfloat16 scales; their zeros follow."""
        return self.positions_at + self.position_bytes * self.slots

    @property
    def value_scales_at(self) -> int:
        """Offset of the values' bfloat16 scales; their zeros follow."""
        return self.key_scales_at + self._scale_bytes(self.key_scale) * self.slots


_NUMBERS = (
    "bits", "dim", "zeros", "has_attention", "position_bytes", "page_bytes", "size", "rows", "width", "key_chunk",
    "value_bytes", "slots", "values_at", "attention_at", "positions_at", "key_scales_at", "value_scales_at",
    "codebook", "float8", "table", "scaled_keys",
)  # fmt: skip
RECORD = np.dtype([(name, np.int64) for name in (*_NUMBERS, "rotate")])


def as_record(layout: Layout, rotate: bool) -> np.ndarray:
    """For the functions that are compiled once for all layouts."""
    return np.array((*(int(getattr(layout, name)) for name in _NUMBERS), int(rotate)), dtype=RECORD)


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
    def scratch(self) -> int:
        """Floats that one thread needs beside its scores."""
        return self.group * (4 * self.width + self.page_slots + 2)


def _together(group: int) -> int:
    """Query heads that are computed together, of `group` that read the same KV head."""
    return group if group <= 4 else max((n for n in (2, 3, 4) if group % n == 0), default=group)


def page_bytes(dim: int, position_bytes: int) -> int:
    """64 slots of 4-bit codes with one scale for key and value: at most a tenth of it is lost to any usual format."""
    return 64 * (dim + 4 + position_bytes)


def row_layout(
    spec: KvSpec, heads: int, group: int, dim: int, exact: str, has_attention: bool, position_bytes: int
) -> RowLayout:
    """Of a request; exact: "f32" or "bf16"."""
    common: dict[str, Any] = {
        "dim": dim, "has_attention": has_attention, "position_bytes": position_bytes,
        "page_bytes": page_bytes(dim, position_bytes), "queries": _together(group),
    }  # fmt: skip
    plain = Layout(
        exact, 32 if exact == "f32" else 16, key_scale="none", value_scale="none", zeros=False, **common
    )
    if spec.quant == "none":
        return RowLayout(heads, group, plain, plain, False, False)
    codec = f"codebook{BITS[spec.quant]}" if spec.codebook else spec.quant
    zeros = codec in ("int4", "int3", "int2")
    packed = Layout(codec, BITS[spec.quant], key_scale="slot", value_scale="slot", zeros=zeros, **common)
    return RowLayout(heads, group, plain, packed, True, spec.rotate)
