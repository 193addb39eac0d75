"""Where everything lies in a page: offsets in bytes, for one way of storing a slot.

A page holds slots of one (row, layer, KV head) in eights ("chunks"), the width of a vector register of floats.
Keys lie transposed within a chunk, so that a product with a query runs over eight slots at once and no sum across
a register is needed; values lie slot by slot, so that a weighted sum runs over eight values at once. A code of
fewer than 8 bits shares its byte with those of other dims of the same slot (d, d + D/2 …), never with a neighbour in
the register: unpacking is a shift and a mask, with nothing to reorder.

3-bit codes are a plane of 2 bits, laid out as 2-bit codes, and behind it a plane of 1 bit.
"""

from dataclasses import dataclass
from math import gcd

from backends.kvcompress.store.codes import LANES, Codes
from backends.kvcompress.store.static import static

_SUMS = 12  # vectors; AVX2 has 16 registers


@static
@dataclass(frozen=True)
class Layout:
    """One format. keys, values: what they become. sharing: what shares a scale: "none" (there is none), "tensor",
    "slot", "group" (of `share` values of a slot), "channel" (of `share` slots), "kivi". has_attention: whether slots
    carry their attention sum. position_bytes: 2 or 4. queries: query heads that are computed together.
    """

    keys: Codes
    values: Codes
    sharing: str
    share: int
    has_attention: bool
    position_bytes: int
    page_bytes: int
    queries: int

    @property
    def dim(self) -> int:
        """Values of a head."""
        return self.keys.dim

    @property
    def width(self) -> int:
        """With padding, of whichever has more."""
        return max(self.keys.width, self.values.width)

    @property
    def zeros(self) -> bool:
        """Whether every scale has an offset beside it; 0 where the codes have none."""
        return self.keys.zeros or self.values.zeros

    @property
    def key_parts(self) -> int:
        """Key values that are unpacked at once; at least two, so that two sums run side by side."""
        return max(2, self.keys.parts)

    @property
    def key_rows(self) -> int:
        """Steps in which all dims of a key are unpacked."""
        return self.keys.width // self.key_parts

    @property
    def score_sums(self) -> int:
        """Vectors that sum the scores of eight slots: two halves for each query."""
        return 2 * self.queries

    @property
    def blocks(self) -> int:
        """Vectors of each part of a value that are summed at once: as many sums as registers can hold."""
        whole = self.values.rows // LANES
        most = max(1, _SUMS // (self.queries * self.values.parts))
        return max(n for n in range(1, whole + 1) if whole % n == 0 and n <= most)

    @property
    def by_tensor(self) -> bool:
        """One scale for keys and one for values of all the row's heads in a layer; it lies in the book."""
        return self.sharing == "tensor"

    @property
    def by_tokens(self) -> bool:
        """Slots share scales, which lie in blocks of their page: slots are dropped by marking them."""
        return self.sharing in ("channel", "kivi")

    @property
    def channel_values(self) -> bool:
        """Whether blocks hold scales of the values' channels as well."""
        return self.sharing == "channel"

    @property
    def scale_bytes(self) -> int:
        """Of a scale and its zero."""
        return 4 if self.zeros else 2

    @property
    def key_groups(self) -> int:
        """Scales that each slot has for its key."""
        return {"slot": 1, "group": self.dim // self.share}.get(self.sharing, 0)

    @property
    def value_groups(self) -> int:
        """Scales that each slot has for its value."""
        return 1 if self.sharing == "kivi" else self.key_groups

    @property
    def weight_groups(self) -> int:
        """Kinds of weights that a slot's value is multiplied with: one for each of its scales."""
        return max(1, self.value_groups)

    @property
    def scaled_weights(self) -> bool:
        """Whether weights take in scales before they meet the values."""
        return self.by_tensor or self.value_groups > 0

    @property
    def group_dims(self) -> int:
        """Values of a slot that share a scale; all of them where it is one."""
        return self.share if self.sharing == "group" else self.width

    @property
    def scale_rows(self) -> int:
        """Key rows after which another of the slot's scales begins to matter."""
        return gcd(self.key_rows, self.group_dims)

    @property
    def group_chunks(self) -> int:
        """Chunks of the slots that share the scales of their channels."""
        return -(-self.share // LANES)

    @property
    def block_bytes(self) -> int:
        """Scales of all channels, of keys and, with "channel", of values."""
        return self.scale_bytes * self.dim * (1 + self.channel_values) if self.by_tokens else 0

    @property
    def chunk_bytes(self) -> int:
        """Everything that eight slots take, and the number of their block."""
        scales = self.scale_bytes * (self.key_groups + self.value_groups)
        slot = self.keys.bytes + self.values.bytes + scales + self.position_bytes + 4 * self.has_attention
        return LANES * slot + self.by_tokens

    @property
    def page_blocks(self) -> int:
        """Blocks in a page: as many as let most of its chunks be used, wherever in a group the page begins."""
        if not self.by_tokens:
            return 0
        most = self.page_bytes // (self.block_bytes + self.chunk_bytes)
        return max(range(1, max(1, most) + 1), key=lambda n: (self._usable(n), -n))

    def _usable(self, blocks: int) -> int:
        whole = (self.page_bytes - blocks * self.block_bytes) // self.chunk_bytes
        return min(whole, blocks * self.group_chunks, max(1, (blocks - 1) * self.group_chunks + 1))

    @property
    def slots(self) -> int:
        """Of one page; 0 where not even eight fit."""
        return (self.page_bytes - self.page_blocks * self.block_bytes) // self.chunk_bytes * LANES

    @property
    def values_at(self) -> int:
        """Offset of the first value."""
        return self.slots * self.keys.bytes

    @property
    def attention_at(self) -> int:
        """Offset of the float32 attention sums."""
        return self.values_at + self.slots * self.values.bytes

    @property
    def positions_at(self) -> int:
        """Offset of the positions."""
        return self.attention_at + 4 * self.has_attention * self.slots

    @property
    def key_scales_at(self) -> int:
        """Offset of the slots' bfloat16 scales of keys, [groups, slots]; their zeros follow."""
        return self.positions_at + self.position_bytes * self.slots

    @property
    def value_scales_at(self) -> int:
        """Offset of the slots' bfloat16 scales of values, [groups, slots]; their zeros follow."""
        return self.key_scales_at + self.scale_bytes * self.key_groups * self.slots

    @property
    def blocks_at(self) -> int:
        """Offset of the blocks: scales of the keys' channels, their zeros, then the values'."""
        return self.value_scales_at + self.scale_bytes * self.value_groups * self.slots

    @property
    def block_numbers_at(self) -> int:
        """Offset of one byte for each chunk: which block its slots use."""
        return self.blocks_at + self.page_blocks * self.block_bytes
