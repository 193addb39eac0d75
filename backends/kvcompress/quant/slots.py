"""Slots of one layer quantised and read back: granularity, format and rotation together."""

from dataclasses import dataclass

import torch

from backends.kvcompress.quant.formats import Format, Scales, decode, encode, fit, format_of
from backends.kvcompress.quant.rotation import rotate, rotate_back
from backends.kvcompress.quant.sharing import granularity_of, shares
from backends.kvcompress.spec import KvSpec


@dataclass(frozen=True, slots=True)
class Quantised:
    """codes uint8 [N, D] (one a byte; `bits` packs them), shares int64 [N, D] into the scales."""

    codes: torch.Tensor
    fitted: Scales
    shares: torch.Tensor
    form: Format
    rotated: bool


def quantise(
    spec: KvSpec,
    kind: str,
    vectors: torch.Tensor,
    positions: torch.Tensor,
    groups: torch.Tensor,
    fixed: Scales | None = None,
) -> Quantised:
    """kind: "keys" or "values"; vectors [N, D] float32 of slots at positions [N], groups as `sharing.group_numbers`
    says (not read where tokens share no scale). fixed: the scale of granularity "tensor" once there is one."""
    form = format_of(spec, kind)
    turned = rotate(vectors) if spec.rotate else vectors
    ids, count = shares(granularity_of(spec, kind), spec.group, positions, groups, vectors.shape[-1])
    fitted = fixed or fit(turned, ids, count, form)
    return Quantised(encode(turned, ids, fitted, form), fitted, ids, form, spec.rotate)


def dequantise(quantised: Quantised) -> torch.Tensor:
    """float32 [N, D]."""
    vectors = decode(quantised.codes, quantised.shares, quantised.fitted, quantised.form)
    return rotate_back(vectors) if quantised.rotated else vectors
