"""Codes packed without a gap, and how many bytes that takes.

A store may lay codes out otherwise; its memory figures are held against these.
"""

import math

import torch

from backends.kvcompress.quant.formats import format_of
from backends.kvcompress.quant.sharing import granularity_of
from backends.kvcompress.spec import KvSpec


def code_bytes(values: int, bits: int) -> int:
    """Bytes that so many codes of one vector take."""
    return math.ceil(values * bits / 8)


def pack_codes(codes: torch.Tensor, bits: int) -> torch.Tensor:
    """uint8 [..., n], of which the low `bits` count -> uint8 [..., code_bytes(n, bits)].

    Code i is bits i*b to i*b+b-1 of a stream whose first bit is the lowest of its first byte; the last byte is filled
    up with zeros.
    """
    stream = _expanded(codes, bits).flatten(-2)
    filled = torch.nn.functional.pad(stream, (0, -stream.shape[-1] % 8))
    return _joined(filled.unflatten(-1, (-1, 8)))


def unpack_codes(packed: torch.Tensor, bits: int, count: int) -> torch.Tensor:
    """The first `count` codes of each vector: uint8 [..., count]."""
    stream = _expanded(packed, 8).flatten(-2)[..., : count * bits]
    return _joined(stream.unflatten(-1, (count, bits)))


def _expanded(numbers: torch.Tensor, bits: int) -> torch.Tensor:
    """[...] -> [..., bits] of 0 and 1, the lowest first."""
    return numbers[..., None] >> torch.arange(bits, dtype=torch.uint8, device=numbers.device) & 1


def _joined(stream: torch.Tensor) -> torch.Tensor:
    places = torch.arange(stream.shape[-1], dtype=torch.uint8, device=stream.device)
    return (stream << places).sum(dim=-1, dtype=torch.uint8)


def scale_count(granularity: str, group: int, tokens: int, heads: int, head_dim: int) -> int:
    """How many scales the keys (or the values) of so many tokens of all heads have."""
    match granularity:
        case "tensor":
            return 1
        case "token":
            return tokens
        case "token_head":
            return tokens * heads
        case "group":
            return tokens * heads * (head_dim // group)
        case _:  # by channel, over whole groups of tokens
            return tokens // group * heads * head_dim


def packed_bytes(spec: KvSpec, tokens: int, heads: int, head_dim: int) -> int:
    """Codes, scales and zeros of the keys and values of so many packed tokens of one layer; no positions, no slack.

    Where tokens share a scale `tokens` is a multiple of spec.group.
    """
    total = 0
    for kind in ("keys", "values"):
        form = format_of(spec, kind)
        scales = scale_count(granularity_of(spec, kind), spec.group, tokens, heads, head_dim)
        total += tokens * heads * code_bytes(head_dim, form.bits) + scales * (4 if form.has_zero else 2)
    return total
