"""This project's engine as a `Driver`: its model, store, policies and kernels, in one process, without a server.

A setting: {"kv": every key of `KvSpec`, "kv_dtype": "f32" or "bf16", of what is not packed, "kernel": "compiled" or
"torch"}.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numba
import torch

from backends.kvcompress import prefill
from backends.kvcompress.attention import PagedAttention
from backends.kvcompress.contracts import Pass
from backends.kvcompress.model.decoder import load_decoder
from backends.kvcompress.model.retrieval import retrieval_heads
from backends.kvcompress.policies import policy
from backends.kvcompress.spec import KvSpec, from_mapping
from backends.kvcompress.store.paged import PagedStore
from backends.kvcompress.store_torch import TorchStore
from benchmarks.kv.driver import Setting
from benchmarks.kv.pool import serve_all

_POOL_BYTES = 8 << 30  # of address space; memory is taken as pages are used
_TORCH_POOL_BYTES = 2 << 30  # taken at once
_ROWS = 64
_CONTEXT = 10_000
_CHUNK = 256  # conf/backend/kvcompress.yaml's prefill_chunk


@dataclass
class _Caches:
    """What caches of one kv_dtype live in."""

    store: PagedStore | TorchStore
    attention: PagedAttention


@dataclass
class _Batch:
    """Requests that go on together; seen: tokens so far, evicted ones included; logits [B, vocabulary]."""

    caches: _Caches
    spec: KvSpec
    rows: list[int]
    seen: list[int]
    logits: torch.Tensor


class Ours:
    """The model in float32; the compiled store."""

    def __init__(self, model: Path, threads: int) -> None:
        torch.set_num_threads(threads)
        numba.set_num_threads(threads)
        torch.set_grad_enabled(False)
        self._model = load_decoder(model, "cpu")
        self._folder = model
        self._threads = threads
        self._caches: dict[tuple[str, str], _Caches] = {}
        self._batches: dict[int, _Batch] = {}
        self._last = 0
        self._compress_seconds = 0.0

    def open(self, prompts: Sequence[Sequence[int]], setting: Setting) -> dict[str, Any]:
        """See `Driver`; prompts may differ in length."""
        caches, spec = self._of(setting)
        self._compress_seconds = 0.0
        started = time.process_time()
        batch = _Batch(caches, spec, [], [len(prompt) for prompt in prompts], torch.empty(0))
        logits = []
        with self._timing_of_sums():
            for prompt in prompts:
                batch.rows.append(caches.attention.open(spec, len(prompt)))
                logits.append(self._read(caches, batch.rows[-1], prompt))
        batch.logits = torch.cat(logits)
        seconds = time.process_time() - started
        return {
            "handle": self._keep(batch),
            "seconds": seconds,
            "compress_seconds": self._compress_seconds,
        }

    def fill(self, context: int, batch: int, setting: Setting) -> int:
        """See `Driver`; of what a budget evicts, slots spread evenly over the context."""
        caches, spec = self._of(setting)
        config = self._model.config
        generator = torch.Generator().manual_seed(context)
        shape = (context, config.kv_heads, config.head_dim)
        positions = torch.arange(context)
        rows = [caches.attention.open(spec, context) for _ in range(batch)]
        for row in rows:
            held = caches.attention._requests[row]
            for layer in range(config.layers):
                keys, values = torch.randn(2, *shape, generator=generator)
                of_row = torch.full((context,), row, dtype=torch.int32)
                caches.store.append(layer, of_row, positions, keys, values)
                if spec.evict != "none":
                    left = torch.tensor(held.allowance.of_heads(layer, context))[:, None]
                    kept = positions * left // context != (positions - 1) * left // context
                    caches.store.keep(layer, row, kept)
                if spec.quant != "none":
                    caches.store.pack(layer, row, spec.sinks, context - spec.recent)
                held.next[layer] = context
        return self._keep(
            _Batch(caches, spec, rows, [context] * batch, torch.zeros(batch, config.vocabulary))
        )

    def forced(self, handle: int, continuations: Sequence[Sequence[int]], step: int) -> list[list[float]]:
        """See `Driver`; one token at a time, as in service, and continuations may differ in length.

        Where everything is kept as computed, which chunks it comes in changes nothing, and `step` counts.
        """
        batch = self._batches[handle]
        if batch.spec.evict == batch.spec.quant == batch.spec.share == "none":
            return [self._forced_chunks(batch, i, ids, step) for i, ids in enumerate(continuations)]
        found: list[list[float]] = [[] for _ in continuations]
        for place in range(max(map(len, continuations))):
            going = [i for i, ids in enumerate(continuations) if place < len(ids)]
            ids = torch.tensor([continuations[i][place] for i in going])
            log_probs = batch.logits[going].log_softmax(-1).gather(1, ids[:, None])[:, 0].tolist()
            for i, value in zip(going, log_probs, strict=True):
                found[i].append(value)
            self._step(batch, going, ids)
        return found

    def greedy(self, handle: int, tokens: int) -> list[list[int]]:
        """See `Driver`."""
        batch = self._batches[handle]
        everybody = list(range(len(batch.rows)))
        found = []
        for _ in range(tokens):
            found.append(batch.logits.argmax(-1))
            self._step(batch, everybody, found[-1])
        return torch.stack(found, 1).tolist()

    def decode(self, handle: int, steps: int) -> list[float]:
        """See `Driver`."""
        batch = self._batches[handle]
        everybody = list(range(len(batch.rows)))
        seconds = []
        for _ in range(steps):
            started = time.process_time()
            self._step(batch, everybody, batch.logits.argmax(-1))
            seconds.append(time.process_time() - started)
        return seconds

    def held_bytes(self, handle: int) -> int:
        """See `Driver`."""
        batch = self._batches[handle]
        return sum(batch.caches.store.held_bytes(row) for row in batch.rows)

    def close(self, handle: int) -> None:
        """See `Driver`."""
        batch = self._batches.pop(handle)
        for row in batch.rows:
            batch.caches.attention.close(row)

    def pool(
        self, setting: Setting, pool_bytes: int, prompts: Sequence[Sequence[int]], tokens: int
    ) -> dict[str, Any]:
        """What the whole engine does with these requests in a pool of this size; see `pool.serve_all`."""
        return serve_all(self._folder, self._threads, setting, pool_bytes, prompts, tokens)

    def _of(self, setting: Setting) -> tuple[_Caches, KvSpec]:
        key = (setting["kernel"], setting["kv_dtype"])
        if key not in self._caches:
            self._caches[key] = self._new_caches(*key)
        return self._caches[key], from_mapping(setting["kv"])

    def _new_caches(self, kernel: str, dtype: str) -> _Caches:
        config = self._model.config
        store = self._compiled_store(dtype) if kernel == "compiled" else self._torch_store(dtype)
        retrieval = partial(
            retrieval_heads,
            self._model,
            config.layers,
            config.kv_heads,
            config.vocabulary,
            self._model.device,
        )
        attention = PagedAttention(store, config.layers, config.kv_heads, self._model.rope, retrieval)
        for owner, name in (
            (attention, "_with_attention"),
            (attention._compressor, "shrink"),
            (attention._compressor, "after_chunk"),
        ):
            setattr(owner, name, self._timed(getattr(owner, name)))
        return _Caches(store, attention)

    def _compiled_store(self, dtype: str) -> PagedStore:
        config = self._model.config
        return PagedStore(
            config.layers,
            config.kv_heads,
            config.heads // config.kv_heads,
            config.head_dim,
            dtype,
            _POOL_BYTES,
            _ROWS,
            _CONTEXT,
            self._threads,
            lambda spec: policy(spec.evict).attention is not None,
        )

    def _torch_store(self, dtype: str) -> TorchStore:
        config = self._model.config
        held = torch.float32 if dtype == "f32" else torch.bfloat16
        return TorchStore(
            config.layers, config.kv_heads, config.head_dim, _TORCH_POOL_BYTES, held, torch.device("cpu")
        )

    @contextmanager
    def _timing_of_sums(self) -> Iterator[None]:
        """What attention sums up counts as scoring meanwhile. It is a function of a module, not of a cache, so it
        is put back for others who measure."""
        before = prefill.add_given
        prefill.add_given = self._timed(before)
        try:
            yield
        finally:
            prefill.add_given = before

    def _timed(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """The same, counted among what scoring, evicting and packing take."""

        def timed(*args: Any) -> Any:
            started = time.process_time()
            try:
                return method(*args)
            finally:
                self._compress_seconds += time.process_time() - started

        return timed

    def _keep(self, batch: _Batch) -> int:
        self._last += 1
        self._batches[self._last] = batch
        return self._last

    def _read(self, caches: _Caches, row: int, prompt: Sequence[int]) -> torch.Tensor:
        """Logits [1, vocabulary] after a prompt, read in chunks."""
        hidden = torch.empty(0)
        for first in range(0, len(prompt), _CHUNK):
            ids = torch.tensor(prompt[first : first + _CHUNK])
            ends = first + len(ids) == len(prompt)
            hidden = self._chunk(caches, row, ids, first, ends, torch.tensor([len(ids) - 1]))
        return self._model.logits(hidden)

    def _chunk(
        self, caches: _Caches, row: int, ids: torch.Tensor, first: int, ends: bool, wanted: torch.Tensor
    ) -> torch.Tensor:
        positions = torch.arange(first, first + len(ids))
        rows = torch.full((len(ids),), row, dtype=torch.int32)
        caches.attention.begin(Pass(rows, positions, len(ids), ends_prompt=ends))
        return self._model.forward(ids, positions, caches.attention, wanted)

    def _forced_chunks(self, batch: _Batch, request: int, given: Sequence[int], step: int) -> list[float]:
        found: list[float] = []
        for first in range(0, len(given), step):
            ids = torch.tensor(given[first : first + step])
            everybody = torch.arange(len(ids))
            hidden = self._chunk(
                batch.caches, batch.rows[request], ids, batch.seen[request], False, everybody
            )
            after = self._model.logits(hidden)
            before = torch.cat((batch.logits[request : request + 1], after[:-1]))
            found += before.log_softmax(-1).gather(1, ids[:, None])[:, 0].tolist()
            batch.logits = batch.logits.clone()  # inference tensors are not written to
            batch.logits[request] = after[-1]
            batch.seen[request] += len(ids)
        return found

    def _step(self, batch: _Batch, going: list[int], ids: torch.Tensor) -> None:
        """One token more, ids [n], for the requests in `going`; their rows of `logits` are the new ones."""
        rows = torch.tensor([batch.rows[i] for i in going], dtype=torch.int32)
        positions = torch.tensor([batch.seen[i] for i in going])
        batch.caches.attention.begin(Pass(rows, positions, 0, ends_prompt=False))
        logits = self._model.logits(self._model.forward(ids, positions, batch.caches.attention))
        if len(going) == len(batch.rows):
            batch.logits = logits
        else:
            batch.logits = batch.logits.clone()  # inference tensors are not written to
            batch.logits[going] = logits
        for i in going:
            batch.seen[i] += 1
