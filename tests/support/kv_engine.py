"""An engine of kvcompress over a tiny model with random weights, and requests through it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from backends.kvcompress.admission import Admission, Dynamic, Static
from backends.kvcompress.attention import PagedAttention
from backends.kvcompress.budgets import Shape
from backends.kvcompress.contracts import KvStore
from backends.kvcompress.engine import KvCompressEngine
from backends.kvcompress.model.decoder import Decoder, load_decoder
from backends.kvcompress.model.size import bytes_held
from backends.kvcompress.needs import Needs
from backends.kvcompress.policies import policy
from backends.kvcompress.scheduler import Scheduler
from backends.kvcompress.scheduling import Scheduling, WorkloadClass
from backends.kvcompress.store.paged import PagedStore
from backends.kvcompress.store_torch import TorchStore
from backends.serving.engine import EngineConfig, RequestOutput, Sampling
from backends.serving.writing import Writing
from tests.support.kv import spec as kv_spec

VOCABULARY = 97
LAYERS, HEADS, GROUP, HEAD_DIM = 3, 2, 2, 16
CONTEXT = 256


def tiny_llama(folder: Path) -> Any:
    """A Llama of transformers with random weights, saved to `folder`: what ours is held against."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS * GROUP,
        num_key_value_heads=HEADS,
        head_dim=HEAD_DIM,
        vocab_size=VOCABULARY,
        max_position_embeddings=CONTEXT,
        initializer_range=0.15,  # varied answers whose best token is 40 rounding errors above the next
    )
    torch.manual_seed(0)
    model = LlamaForCausalLM(config).float().eval()
    model.save_pretrained(folder)
    return model


# Nothing but lengths and pressure counts, unless a test says otherwise.
SCHEDULING = Scheduling(
    headroom=0, tokens=100, least=1.0, most=1.0, classes={"other": WorkloadClass(3.0, 1.0)}
)


def torch_store(pool_bytes: int) -> KvStore:
    return TorchStore(LAYERS, HEADS, HEAD_DIM, pool_bytes, torch.float32, torch.device("cpu"))


def paged_store(pool_bytes: int) -> KvStore:
    return PagedStore(
        LAYERS, HEADS, GROUP, HEAD_DIM, "f32", pool_bytes, max_rows=9, context_length=CONTEXT, threads=1,
        has_attention=lambda spec: policy(spec.evict).attention is not None,
    )  # fmt: skip


@dataclass
class Driven:
    """An engine with its store, stepped by hand; `told` is what came of each request."""

    engine: KvCompressEngine
    store: KvStore
    scheduler: Scheduler
    needs: Needs
    attention: PagedAttention
    admission: Admission
    told: dict[int, list[RequestOutput]] = field(default_factory=dict)

    def step(self) -> None:
        for output in self.engine.step():
            self.told.setdefault(output.request_id, []).append(output)

    def drain(self) -> None:
        while self.engine.has_work():
            self.step()

    def tokens(self, request_id: int) -> list[int]:
        return [token for output in self.told.get(request_id, []) for token in output.token_ids]

    def logprobs(self, request_id: int) -> list[float]:
        return [value for output in self.told[request_id] for value in output.logprobs or ()]

    def prompt_logprobs(self, request_id: int) -> tuple[float | None, ...]:
        (told,) = [o.prompt_logprobs for o in self.told[request_id] if o.prompt_logprobs is not None]
        return told


def driven(
    model: Decoder,
    pages: int = 4000,
    chunk: int = 16,
    running: int = 8,
    dynamic: bool = False,
    scheduling: Scheduling = SCHEDULING,
    eos_ids: tuple[int, ...] = (VOCABULARY - 1,),
    writing: Callable[..., Writing] = Writing,
    kind: Callable[[int], KvStore] = torch_store,
    **changes: Any,
) -> Driven:
    """With a pool of so many pages. kind: makes the store from the bytes of its pool. changes: of the default KV
    setting."""
    page = kind(0).page_bytes
    store = kind(pages * page)
    attention = PagedAttention(store, LAYERS, HEADS, model.rope, measures=dynamic)
    needs = Needs(store, Shape(LAYERS, HEADS), chunk)
    admission: Admission = Static(store, needs, scheduling.headroom)
    if dynamic:
        admission = Dynamic(store, needs, attention, scheduling)
    scheduler = Scheduler(store, attention, needs, admission, running, chunk)
    config = EngineConfig(
        Path(), eos_ids, "cpu", "f32", "f32", CONTEXT, running, pages * page, False, chunk, 1, 0
    )
    engine = KvCompressEngine(
        config,
        kv_spec(**changes),
        model,
        store,
        attention,
        scheduler,
        VOCABULARY,
        bytes_held(model.weights),
        scheduling=scheduling,
        writing=writing,
    )
    return Driven(engine, store, scheduler, needs, attention, admission)


def sampling(max_tokens: int, **changes: Any) -> Sampling:
    """Greedy, to the given length."""
    plain = {"min_tokens": 0, "ignore_eos": True, "temperature": 0.0, "top_p": 1.0, "seed": 0}
    return Sampling(
        **{**plain, "logprobs": True, "prompt_logprobs": False, "max_tokens": max_tokens, **changes}
    )


def load_tiny(folder: Path) -> Decoder:
    """What `tiny_llama` saved."""
    return load_decoder(folder, "cpu")
