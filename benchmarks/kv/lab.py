"""A prompt computed once, then continued from whatever of its keys and values a method leaves.

The prompt is read whole, with full attention; what a method would see of it is kept. A continuation is forced in one
pass: its tokens attend to what was left and to each other in full precision. So a method is only a selection and a
rounding, and costs one short pass; the engine itself also evicts between the chunks of a prompt and packs what it
decodes, which `benchmarks/kvcompress.py` measures.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch.nn.functional import pad

from backends.kvcompress.model.decoder import Decoder
from backends.kvcompress.prefill import attend_chunk

_EVERY, _SAMPLE = 256, 8  # the last 8 queries of every 256: those of a prompt's chunks
_BLOCK = 256  # queries whose attention is computed at once


@dataclass(frozen=True, slots=True)
class Prompt:
    """keys, values [L, H, T, D], RoPE applied. given, sampled [L, H, T]: the attention that each slot was given,
    summed over the query heads of its KV head, by all queries and by those of the sample."""

    keys: torch.Tensor
    values: torch.Tensor
    given: torch.Tensor
    sampled: torch.Tensor

    @property
    def tokens(self) -> int:
        """Its length."""
        return self.keys.shape[2]


@dataclass(frozen=True, slots=True)
class Left:
    """What a method leaves: stays [L, H, T] bool, and keys and values as they are read back."""

    stays: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor


Method = Callable[[Prompt], Left]


@torch.inference_mode()
def read(model: Decoder, ids: Sequence[int]) -> Prompt:
    """Compute a prompt."""
    reading = _Reading(model, len(ids))
    model.forward(torch.tensor(ids), torch.arange(len(ids)), reading, torch.tensor([len(ids) - 1]))
    return Prompt(reading.keys, reading.values, reading.given, reading.sampled)


@torch.inference_mode()
def forced(model: Decoder, left: Left, ids: Sequence[int], wanted: int) -> torch.Tensor:
    """ids follow the prompt. Natural log-probabilities [wanted, vocabulary] of what comes after each of the last
    `wanted` of them."""
    first = left.keys.shape[2]
    positions = torch.arange(first, first + len(ids))
    last = torch.arange(len(ids) - wanted, len(ids))
    hidden = model.forward(torch.tensor(ids), positions, _Continuing(left), last)
    return model.logits(hidden).log_softmax(-1)


class _Reading:
    """Fulfils `contracts.Attention`: full and causal, keeping what methods look at."""

    def __init__(self, model: Decoder, tokens: int) -> None:
        config = model.config
        shape = (config.layers, config.kv_heads, tokens)
        self.keys, self.values = torch.empty(2, *shape, config.head_dim)
        self.given, self.sampled = torch.zeros(2, *shape)

    def __call__(
        self, layer: int, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> torch.Tensor:
        self.keys[layer], self.values[layer] = keys.transpose(0, 1), values.transpose(0, 1)
        parts = []
        for first in range(0, len(queries), _BLOCK):
            end = min(first + _BLOCK, len(queries))
            shown = queries[first:end], self.keys[layer, :, :end], self.values[layer, :, :end], None
            result, given = attend_chunk(*shown, torch.ones(end - first))
            assert given is not None
            self.given[layer, :, :end] += given
            parts.append(result)
            _, given = attend_chunk(queries[end - _SAMPLE : end], *shown[1:], torch.ones(_SAMPLE))
            assert given is not None
            self.sampled[layer, :, :end] += given
        return torch.cat(parts)


class _Continuing:
    """Fulfils `contracts.Attention` for tokens after a prompt of which `left` is held."""

    def __init__(self, left: Left) -> None:
        self._left = left

    def __call__(
        self, layer: int, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> torch.Tensor:
        left, stays = self._left, self._left.stays[layer]
        most = int(stays.sum(1).max())
        missing = torch.ones(len(stays), most + len(keys), dtype=torch.bool)
        held = []
        for before, now in ((left.keys, keys), (left.values, values)):
            rows = [
                pad(row[stay], (0, 0, most - int(stay.sum()), 0))
                for row, stay in zip(before[layer], stays, strict=True)
            ]
            held.append(torch.cat((torch.stack(rows), now.transpose(0, 1)), 1))
        for row, stay in zip(missing, stays, strict=True):
            row[most - int(stay.sum()) :] = False
        return attend_chunk(queries, *held, missing if missing.any() else None, None)[0]
