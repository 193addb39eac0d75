"""The selections and roundings that were tried for `auto`."""

from collections.abc import Callable
from dataclasses import replace

import torch

from backends.kvcompress.quant.slots import dequantise, quantise
from backends.kvcompress.spec import KvSpec
from benchmarks.kv.lab import Left, Method, Prompt

SINKS = 4
Score = Callable[[Prompt], torch.Tensor]  # [L, H, T], higher stays first


def everything(prompt: Prompt) -> Left:
    """The full cache."""
    return Left(torch.ones_like(prompt.given, dtype=torch.bool), prompt.keys, prompt.values)


def latest(prompt: Prompt) -> torch.Tensor:
    """StreamingLLM's window."""
    return torch.arange(prompt.tokens).expand_as(prompt.given).float()


def attention_sum(prompt: Prompt) -> torch.Tensor:
    """H2O: by all queries, summed."""
    return prompt.given


def attention_mean(prompt: Prompt) -> torch.Tensor:
    """By all queries, per query that could give any."""
    return prompt.given / _lifetime(prompt)


def sampled_mean(prompt: Prompt) -> torch.Tensor:
    """As attention_mean, by the last 8 queries of every 256."""
    return prompt.sampled / _lifetime(prompt)


def key_difference(prompt: Prompt) -> torch.Tensor:
    """KeyDiff (Park et al. 2025, arXiv 2504.15364): keys least like the mean key."""
    keys = torch.nn.functional.normalize(prompt.keys, dim=-1)
    return -(keys * keys.mean(2, keepdim=True)).sum(-1)


def evicting(score: Score, fraction: float, window: int, whole: torch.Tensor | None = None) -> Method:
    """Keeps `fraction` of all slots: the sinks, the latest `window` tokens and the best of each head.

    whole: [L, H] bool, heads that keep everything; the others share what that leaves.
    """

    def method(prompt: Prompt) -> Left:
        share = fraction
        if whole is not None:
            share = (fraction * whole.numel() - int(whole.sum())) / int((~whole).sum())
        scores = score(prompt).clone()
        scores[..., :SINKS] = torch.inf
        scores[..., prompt.tokens - window :] = torch.inf
        best = scores.topk(int(share * prompt.tokens), -1).indices
        stays = torch.zeros_like(scores, dtype=torch.bool).scatter_(2, best, True)
        if whole is not None:
            stays[whole] = True
        return Left(stays, prompt.keys, prompt.values)

    return method


def packed(method: Method, spec: KvSpec) -> Method:
    """What the method leaves, quantised but for the sinks and the latest `spec.recent` tokens."""

    def packing(prompt: Prompt) -> Left:
        left = method(prompt)
        within = slice(spec.sinks, prompt.tokens - spec.recent)
        layers, heads, tokens, size = left.keys.shape
        read_back = []
        for kind, exact in (("keys", left.keys), ("values", left.values)):
            flat = exact.reshape(-1, size)
            places = torch.arange(tokens).repeat(layers * heads)
            rounded = dequantise(quantise(spec, kind, flat, places, places)).view_as(exact)
            read_back.append(exact.clone())
            read_back[-1][:, :, within] = rounded[:, :, within]
        return replace(left, keys=read_back[0], values=read_back[1])

    return packing


def bytes_held(left: Left, spec: KvSpec, exact_bits: int = 32) -> int:
    """Codes, scales (bfloat16) and positions (2 bytes) of what is left, and exact slots; no slack of pages."""
    tokens, size = left.stays.shape[2], left.keys.shape[3]
    within = torch.zeros(tokens, dtype=torch.bool)
    within[spec.sinks : tokens - spec.recent] = spec.quant != "none"
    bits = {"none": exact_bits, "int8": 8, "int4": 4, "int3": 3, "int2": 2}[spec.quant]
    code = 2 * size * bits // 8 + 2 * 2 + 2
    exact = 2 * size * exact_bits // 8 + 2
    return int(left.stays[..., within].sum()) * code + int(left.stays[..., ~within].sum()) * exact


def _lifetime(prompt: Prompt) -> torch.Tensor:
    return prompt.tokens - torch.arange(prompt.tokens).float()
