"""Model, store, attention and scheduler put together into the engine."""

import logging
from collections.abc import Callable
from functools import partial

from backends.kvcompress.requested import default_spec, scheduling_from
from backends.serving.engine import Engine, EngineConfig
from backends.serving.writing import Writing
from harness.core.errors import EngineError, UsageError

try:
    import torch

    from backends.kvcompress.admission import Admission, Dynamic, Static
    from backends.kvcompress.attention import PagedAttention
    from backends.kvcompress.budgets import Shape
    from backends.kvcompress.contracts import KvStore
    from backends.kvcompress.engine import KvCompressEngine
    from backends.kvcompress.model.config import DecoderConfig
    from backends.kvcompress.model.decoder import Decoder, load_decoder
    from backends.kvcompress.model.retrieval import retrieval_heads
    from backends.kvcompress.model.size import bytes_held
    from backends.kvcompress.needs import Needs
    from backends.kvcompress.policies import policy
    from backends.kvcompress.scheduler import Scheduler
    from backends.kvcompress.spec import KvSpec
    from backends.kvcompress.warm_up import warm_up
except ImportError as error:
    raise EngineError(
        f"kvcompress cannot be imported in this environment ({error}). "
        "Type: python -m harness.engines action=install engine=kvcompress, or name another environment with "
        "backend.python."
    ) from error

log = logging.getLogger("kvcompress")
_DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


def load(config: EngineConfig) -> Engine:
    """Load the model, set aside `config.kv_bytes`, to the page, and compile what requests that say nothing need.

    Raises EngineError where one request of `config.context_length` tokens does not fit under the KV setting of the
    options, UsageError for a setting that cannot be.
    """
    torch.set_num_threads(config.threads)
    torch.set_grad_enabled(False)
    device = config.device.replace(".", ":")
    engine = assemble(config, load_decoder(config.model, device, (config.own or {}).get("weight_dtype")))
    warm_up(engine, default_spec(config))
    return engine


def assemble(
    config: EngineConfig, model: Decoder, writing: Callable[..., Writing] = Writing
) -> KvCompressEngine:
    """The engine around a model that is loaded; see `load`."""
    own, spec = config.own or {}, default_spec(config)
    model.config.check_context(config.context_length)
    store = _store(config, model.config, own["kernel"])
    shape = Shape(model.config.layers, model.config.kv_heads)
    retrieval = partial(
        retrieval_heads, model, shape.layers, shape.heads, model.config.vocabulary, model.device
    )
    scheduling, dynamic = scheduling_from(config), own["scheduler"] == "dynamic"
    attention = PagedAttention(store, shape.layers, shape.heads, model.rope, retrieval, measures=dynamic)
    needs = Needs(store, shape, config.prefill_chunk)
    attention.close(attention.open(spec, config.context_length))  # told now rather than at the first request
    _check_pool(config, spec, needs, store)
    admission: Admission = Static(store, needs, scheduling.headroom)
    if dynamic:
        admission = Dynamic(store, needs, attention, scheduling)
    scheduler = Scheduler(store, attention, needs, admission, config.max_running, config.prefill_chunk)
    log.info("ready: %d pages of %d bytes, %s kernel", store.pages, store.page_bytes, own["kernel"])
    return KvCompressEngine(
        config,
        spec,
        model,
        store,
        attention,
        scheduler,
        model.config.vocabulary,
        bytes_held(model.weights),
        scheduling=scheduling,
        writing=writing,
    )


def _store(config: EngineConfig, model: DecoderConfig, kernel: str) -> KvStore:
    if kernel == "torch":
        from backends.kvcompress.store_torch import TorchStore

        device = torch.device(config.device.replace(".", ":"))
        dtype = _DTYPES[config.kv_dtype]
        return TorchStore(model.layers, model.kv_heads, model.head_dim, config.kv_bytes, dtype, device)
    if kernel != "compiled":
        raise UsageError(f"--options: own.kernel={kernel} is unknown. Use compiled or torch.")
    from backends.kvcompress.store.paged import PagedStore

    return PagedStore(
        model.layers, model.kv_heads, model.heads // model.kv_heads, model.head_dim,
        exact_dtype=config.kv_dtype,
        pool_bytes=config.kv_bytes,
        max_rows=config.max_running + 1,  # one to see whether a request can be held before it waits
        context_length=config.context_length,
        threads=config.threads,
        has_attention=lambda spec: policy(spec.evict).attention is not None,
    )  # fmt: skip


def _check_pool(config: EngineConfig, spec: KvSpec, needs: Needs, store: KvStore) -> None:
    longest = config.context_length
    pages = needs.held(spec, longest, longest) + needs.passing(spec, longest)
    if pages > store.pages:
        raise EngineError(
            f"backend.kv_bytes={config.kv_bytes} does not hold one request of backend.context_length={longest} "
            f"tokens under backend.kv, which may take {pages * store.page_bytes} bytes. Raise the first, lower the "
            "second, or keep less."
        )
