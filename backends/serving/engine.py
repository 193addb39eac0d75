"""What an engine of a library must offer to be served: a handful of plain calls, made by one thread.

This room lives in the engine's environment: it imports aiohttp, tokenizers and the core, never Hydra or pandas.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from harness.core.errors import UsageError

# name -> "module:function"; the function takes an EngineConfig and returns an Engine that is ready to work.
_ENGINES = {
    "kvcompress": "backends.kvcompress.loading:load",
    "onnxruntime": "backends.onnxruntime.engine:load",
    "openvino": "backends.openvino.engine:load",
}
# The most probable tokens of one position, each with the natural log of its probability, the most probable first.
Alternatives = tuple[tuple[int, float], ...]

# name -> "module:function" of the engines whose requests may bring a `kv` object. The function takes an EngineConfig
# and the object, and raises UsageError for one that cannot be; it is called before the engine sees the request.
_KV_OF_REQUESTS = {"kvcompress": "backends.kvcompress.requested:check_kv"}


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """What an engine is loaded with, in the harness's one vocabulary (see `backends.base.EngineOptions`).

    eos_ids: ids that end an answer. kv_bytes_per_token: a first guess that saves the engine a second load, or
    None; what is really reserved is measured. own: what is particular to one engine, or None.
    """

    model: Path
    eos_ids: tuple[int, ...]
    device: str
    dtype: str
    kv_dtype: str
    context_length: int
    max_running: int
    kv_bytes: int
    prefix_cache: bool
    prefill_chunk: int
    threads: int
    seed: int
    kv_bytes_per_token: float | None = None
    own: Mapping[str, Any] | None = None

    @classmethod
    def from_options(
        cls, model: Path, eos_ids: tuple[int, ...], options: Mapping[str, Any]
    ) -> "EngineConfig":
        """Build from the JSON object of the command line; raises UsageError for a missing or unknown key."""
        known = {f.name for f in fields(cls)} - {"model", "eos_ids"}
        missing = sorted(known - {"kv_bytes_per_token", "own"} - options.keys())
        unknown = sorted(options.keys() - known)
        if missing or unknown:
            said = [f"lacks {', '.join(missing)}"] if missing else []
            said += [f"does not know {', '.join(unknown)}"] if unknown else []
            raise UsageError(f"--options {' and '.join(said)}.")
        return cls(model=model, eos_ids=eos_ids, **options)


@dataclass(frozen=True, slots=True)
class Sampling:
    """How one answer is generated.

    max_tokens: at most this many (0 only with prompt_logprobs). min_tokens: the end token is impossible before.
    temperature: 0 takes the most probable token. seed: of this request's own random numbers.
    logprobs, prompt_logprobs: also report the log-probability of each generated / each prompt token.
    alternatives: beside each of those, that of so many most probable tokens (0: of none).
    kv: how the request's KV cache is held where that differs from the engine's options; None where nothing does.
    """

    max_tokens: int
    min_tokens: int
    ignore_eos: bool
    temperature: float
    top_p: float
    seed: int
    logprobs: bool
    prompt_logprobs: bool
    alternatives: int = 0
    kv: Mapping[str, Any] | None = None


class RequestOutput(NamedTuple):
    """What one step gave to one request. A tuple, since one is made and sent for every token.

    token_ids: the new tokens, the end token included. logprobs: one for each of them, or None if not asked for.
    prompt_logprobs: once, natural logs, one for each prompt token, None for the first. alternatives,
    prompt_alternatives: beside them, where asked for. finish: "stop" (an end token), "length", or None while it goes
    on. error: why this request ended without an answer.
    """

    request_id: int
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] | None = None
    prompt_logprobs: tuple[float | None, ...] | None = None
    finish: str | None = None
    error: str | None = None
    alternatives: tuple[Alternatives, ...] | None = None
    prompt_alternatives: tuple[Alternatives | None, ...] | None = None


class Engine(Protocol):
    """An engine as the serving room drives it: add and cancel between steps, one step at a time.

    capacity_tokens: most tokens one request can hold in the KV cache. Nothing here needs to be thread-safe.
    """

    capacity_tokens: int

    def add(self, request_id: int, ids: list[int], sampling: Sampling) -> None:
        """Take a request whose ids fit the capacity; raises ValueError where it cannot be honoured."""
        ...

    def cancel(self, request_id: int) -> None:
        """Forget a request; the next step frees what it held. Unknown ids are ignored."""
        ...

    def has_work(self) -> bool:
        """Whether `step` would do anything."""
        ...

    def step(self) -> list[RequestOutput]:
        """Compute once; what came of it, for each request that got something."""
        ...

    def gauges(self) -> dict[str, float]:
        """Current values by `harness.core.metric_names`; those the library does not tell are left out."""
        ...

    def close(self) -> None:
        """Free everything."""
        ...


def load_engine(name: str, config: EngineConfig) -> Engine:
    """Load the engine called `name`; raises UsageError for an unknown one."""
    place = _ENGINES.get(name)
    if place is None:
        raise UsageError(f"--engine {name} is unknown. Choose one of {', '.join(sorted(_ENGINES))}.")
    engine: Engine = _function(place)(config)
    return engine


def kv_check(name: str, config: EngineConfig) -> Callable[[Mapping[str, Any]], None] | None:
    """What checks the `kv` object of a request, raising UsageError; None where the engine takes none."""
    place = _KV_OF_REQUESTS.get(name)
    return None if place is None else partial(_function(place), config)


def _function(place: str) -> Callable[..., Any]:
    module, _, name = place.partition(":")
    function: Callable[..., Any] = getattr(import_module(module), name)
    return function
