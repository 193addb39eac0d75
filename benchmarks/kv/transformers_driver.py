"""transformers' caches and kvpress's presses as a `Driver`; runs in the peers' environment.

A setting: {} is DynamicCache; {"quantized": {"backend": "quanto", "nbits": 4}} QuantizedCache with these arguments;
{"press": "SnapKVPress", "ratio": 0.5} a press of kvpress (what it drops, in the prefill), with "options" of its own.
Greedy decoding goes through the model's forward pass, which costs less than `generate`.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM, DynamicCache, QuantizedCache

from benchmarks.kv.driver import Setting


@dataclass
class _Batch:
    """Requests that go on together; seen: tokens so far, evicted ones included; logits [B, vocabulary]."""

    cache: Any
    seen: int
    logits: torch.Tensor


class Transformers:
    """The model in float32 with `sdpa` attention, as transformers loads it."""

    def __init__(self, model: Path, threads: int) -> None:
        torch.set_num_threads(threads)
        torch.set_grad_enabled(False)
        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        self._model = AutoModelForCausalLM.from_pretrained(
            model, dtype=torch.float32, attn_implementation="sdpa"
        ).eval()
        self._batches: dict[int, _Batch] = {}
        self._last = 0

    def open(self, prompts: Sequence[Sequence[int]], setting: Setting) -> dict[str, Any]:
        """See `Driver`."""
        started = time.process_time()
        cache = self._cache(setting)
        press, spent = _press(setting)
        with press(self._model) if press else nullcontext():
            logits = self._model(
                input_ids=torch.tensor(prompts), past_key_values=cache, use_cache=True, logits_to_keep=1
            ).logits[:, -1]
        seconds = time.process_time() - started
        handle = self._keep(_Batch(cache, len(prompts[0]), logits))
        return {"handle": handle, "seconds": seconds, "compress_seconds": sum(spent)}

    def fill(self, context: int, batch: int, setting: Setting) -> int:
        """See `Driver`."""
        cache = self._cache(setting)
        config = self._model.config
        shape = (batch, config.num_key_value_heads, context, config.head_dim)
        generator = torch.Generator().manual_seed(context)
        for layer in range(config.num_hidden_layers):
            keys, values = (torch.randn(shape, generator=generator) for _ in range(2))
            cache.update(keys, values, layer)
        return self._keep(_Batch(cache, context, torch.zeros(batch, config.vocab_size)))

    def forced(self, handle: int, continuations: Sequence[Sequence[int]], step: int) -> list[list[float]]:
        """See `Driver`."""
        batch = self._batches[handle]
        ids = torch.tensor(continuations)
        found = []
        for first in range(0, ids.shape[1], step):
            chunk = ids[:, first : first + step]
            before = batch.logits[:, None]
            logits = self._forward(batch, chunk)
            rows = torch.cat((before, logits[:, :-1]), 1).log_softmax(-1)
            found.append(rows.gather(-1, chunk[..., None])[..., 0])
        return torch.cat(found, 1).tolist()

    def greedy(self, handle: int, tokens: int) -> list[list[int]]:
        """See `Driver`."""
        batch = self._batches[handle]
        found = []
        for _ in range(tokens):
            found.append(batch.logits.argmax(-1))
            self._forward(batch, found[-1][:, None])
        return torch.stack(found, 1).tolist()

    def decode(self, handle: int, steps: int) -> list[float]:
        """See `Driver`."""
        batch = self._batches[handle]
        seconds = []
        for _ in range(steps):
            started = time.process_time()
            self._forward(batch, batch.logits.argmax(-1)[:, None])
            seconds.append(time.process_time() - started)
        return seconds

    def held_bytes(self, handle: int) -> int:
        """See `Driver`."""
        cache = self._batches[handle].cache
        storages = {
            tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes()
            for layer in cache.layers
            for tensor in _tensors(vars(layer))
        }
        return sum(storages.values())

    def close(self, handle: int) -> None:
        """See `Driver`."""
        del self._batches[handle]

    def _keep(self, batch: _Batch) -> int:
        self._last += 1
        self._batches[self._last] = batch
        return self._last

    def _forward(self, batch: _Batch, ids: torch.Tensor) -> torch.Tensor:
        """Logits [B, n, vocabulary] after each of ids [B, n]; the positions are the original ones, as in kvpress."""
        positions = torch.arange(batch.seen, batch.seen + ids.shape[1])[None].expand(len(ids), -1)
        logits = self._model(
            input_ids=ids, past_key_values=batch.cache, position_ids=positions, use_cache=True
        ).logits
        batch.seen += ids.shape[1]
        batch.logits = logits[:, -1]
        return logits

    def _cache(self, setting: Setting) -> Any:
        if "quantized" in setting:
            return QuantizedCache(config=self._model.config, **setting["quantized"])
        return DynamicCache(config=self._model.config)


def _press(setting: Setting) -> tuple[Any, list[float]]:
    """The press, or None, and a list to which each layer's compression adds its CPU seconds."""
    spent: list[float] = []
    if "press" not in setting:
        return None, spent
    import kvpress

    press = getattr(kvpress, setting["press"])(
        compression_ratio=setting["ratio"], **setting.get("options", {})
    )
    compress = press.compress

    def timed(*args: Any, **kwargs: Any) -> Any:
        started = time.process_time()
        try:
            return compress(*args, **kwargs)
        finally:
            spent.append(time.process_time() - started)

    press.compress = timed
    return press, spent


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    """Every plain tensor within; a tensor that wraps others (quanto's) is what it wraps."""
    if isinstance(value, torch.Tensor):
        if hasattr(value, "__tensor_flatten__"):
            names, _ = value.__tensor_flatten__()
            for name in names:
                yield from _tensors(getattr(value, name))
        else:
            yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from _tensors(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _tensors(one)
