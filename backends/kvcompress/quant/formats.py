"""What a number becomes, given what shares its scale. Scales and offsets are bfloat16, and codes are computed against
the rounded ones, so that what is stored is all that is needed to read it back.

    int8      value = scale * code, -127 <= code <= 127 in two's complement; scale = max|x| / 127
    fp8       value = scale * e4m3(code); scale = max|x| / 448
    int4/3/2  even steps: value = zero + scale * code; zero = min x, scale = (max x - zero) / (2^bits - 1)
    codebook  value = scale * level(code), the levels of a unit Gaussian; scale = root mean square of x

A scale is rounded to nearest even, a zero downwards, so that no value lies below it: every value that took part in
fitting is read back within half a step (codebook and fp8: within half the gap of the levels about it), and one that
did not (a fixed scale, see `sharing`) saturates. Where all that share a scale are 0 (or so small that float32 does
not hold the scale, or a codebook's squares) the scale may be 0, and so is what is read back.
"""

from dataclasses import dataclass

import torch

from backends.kvcompress.quant import codebook, fp8
from backends.kvcompress.spec import BITS, CODEBOOKS, KvSpec


@dataclass(frozen=True, slots=True)
class Format:
    """quant: one of spec.BITS. codebook: Lloyd-Max levels instead of even steps (int4, int3, int2)."""

    quant: str
    codebook: bool

    @property
    def bits(self) -> int:
        """Of one code."""
        return BITS[self.quant]

    @property
    def has_zero(self) -> bool:
        """Whether an offset is stored beside each scale."""
        return self.quant in ("int4", "int3", "int2") and not self.codebook


def format_of(spec: KvSpec, kind: str) -> Format:
    """Of "keys" or "values", where spec.quant is not "none"."""
    quant = spec.value_quant if kind == "values" and spec.value_quant else spec.quant
    return Format(quant, spec.codebook and quant in CODEBOOKS)


@dataclass(frozen=True, slots=True)
class Scales:
    """scales [S] and, for even steps, zeros [S]: bfloat16."""

    scales: torch.Tensor
    zeros: torch.Tensor | None


def down_to_bfloat16(values: torch.Tensor) -> torch.Tensor:
    """The largest bfloat16 that is not above each float32."""
    bits = values.contiguous().view(torch.int32)
    # Cutting the low half moves towards 0; a negative number is moved past the next one first.
    cut = torch.where(bits < 0, bits + 0xFFFF, bits) & ~0xFFFF
    return cut.view(torch.float32).to(torch.bfloat16)


def fit(values: torch.Tensor, shares: torch.Tensor, count: int, form: Format) -> Scales:
    """The scales of float32 values; shares (int64, the same shape) says which of `count` scales each value uses.

    Raises ValueError for values that are not finite: there is no scale for them.
    """
    if not torch.isfinite(values).all():
        raise ValueError("keys and values must be finite to be quantised")
    flat, ids = values.reshape(-1), shares.reshape(-1)
    empty = flat.new_zeros(count)
    if form.codebook:
        squares = empty.scatter_add(0, ids, flat * flat)
        uses = empty.scatter_add(0, ids, torch.ones_like(flat))
        return Scales((squares / uses.clamp(min=1)).sqrt().to(torch.bfloat16), None)
    if form.has_zero:
        lowest = empty.scatter_reduce(0, ids, flat, "amin", include_self=False)
        highest = empty.scatter_reduce(0, ids, flat, "amax", include_self=False)
        zeros = down_to_bfloat16(lowest)
        return Scales(((highest - zeros.float()) / (2**form.bits - 1)).to(torch.bfloat16), zeros)
    largest = empty.scatter_reduce(0, ids, flat.abs(), "amax", include_self=False)
    return Scales((largest / (127 if form.quant == "int8" else fp8.LARGEST)).to(torch.bfloat16), None)


def encode(values: torch.Tensor, shares: torch.Tensor, fitted: Scales, form: Format) -> torch.Tensor:
    """Codes: uint8 of the values' shape; those of fewer than 8 bits use the low ones."""
    scales = fitted.scales.float()[shares]
    shifted = values if fitted.zeros is None else values - fitted.zeros.float()[shares]
    steps = torch.where(scales > 0, shifted / scales, torch.zeros_like(shifted))
    if form.codebook:
        return codebook.nearest(steps, form.bits).to(torch.uint8)
    if form.quant == "fp8":
        return fp8.encode(steps)
    if form.quant == "int8":
        return steps.round().clamp(-127, 127).to(torch.int8).view(torch.uint8)
    return steps.round().clamp(0, 2**form.bits - 1).to(torch.uint8)


def decode(codes: torch.Tensor, shares: torch.Tensor, fitted: Scales, form: Format) -> torch.Tensor:
    """float32 of the codes' shape."""
    scales = fitted.scales.float()[shares]
    if form.codebook:
        return scales * codebook.levels(form.bits, codes.device)[codes.long()]
    if form.quant == "fp8":
        return scales * fp8.table(codes.device)[codes.long()]
    if form.quant == "int8":
        return scales * codes.view(torch.int8).float()
    if fitted.zeros is None:
        raise ValueError("even steps need their zeros")
    return fitted.zeros.float()[shares] + scales * codes.float()
