"""How one vector of a slot, its key or its value, becomes bytes."""

from dataclasses import dataclass

from backends.kvcompress.store.static import static

LANES = 8
TABLES = ("int8", "fp8", "even", "codebook4", "codebook3", "codebook2")
_PARTS = {32: 1, 16: 1, 8: 1, 4: 2, 3: 8, 2: 4}


@static
@dataclass(frozen=True)
class Codes:
    """codec: how a number is read (see `codecs`). dim: numbers of a vector; width: padded to whole registers."""

    codec: str
    bits: int
    dim: int

    @property
    def size(self) -> int:
        """Bytes of a code that shares its byte with none."""
        return max(8, self.bits) // 8

    @property
    def parts(self) -> int:
        """Codes of one vector that share a byte."""
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
    def bytes(self) -> int:
        """Of one vector."""
        return self.width * self.bits // 8

    @property
    def chunk(self) -> int:
        """Bytes of eight vectors."""
        return self.width * self.bits

    @property
    def codebook(self) -> bool:
        """Lloyd-Max levels."""
        return self.codec.startswith("codebook")

    @property
    def zeros(self) -> bool:
        """Whether an offset goes with each scale: even steps."""
        return self.codec in ("int4", "int3", "int2")

    @property
    def float8(self) -> bool:
        """An e4m3 float."""
        return self.codec == "fp8"

    @property
    def table(self) -> int:
        """Which of TABLES a code is looked up in; -1: a float itself."""
        return -1 if self.bits > 8 else TABLES.index(self.codec if self.codec in TABLES else "even")
