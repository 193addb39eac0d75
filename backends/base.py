"""The contract between the harness and an engine: one vocabulary of options, what an engine can do, how it starts.

A backend is a launch spec and probes, nothing more. It imports no engine library: engines live in environments
of their own and are started as processes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, Self

from omegaconf import MISSING

from harness.core.model_store import ModelFiles
from harness.core.tls import Trust
from harness.core.weight_files import WeightSize

KV_DTYPES = ("f32", "bf16", "f16", "fp8", "int8", "int4")
Say = Callable[[str], None]


@dataclass
class EngineOptions:
    """One vocabulary for every engine; adapters translate. Values come from conf/backend/*.yaml.

    python: interpreter of the user's own environment for the engine; null means the one that
        `python -m harness.engines` made. install: make that one where it is missing.
    base_url: a server of this engine that runs already; nothing is started, and its settings are its owner's.
    device: cpu, cuda, gpu, npu; an engine with several of a kind takes a number behind a dot (gpu.1).
    dtype: arithmetic of the computation. weight_dtype: what weights are stored as; null means as the model has them.
    kv_dtype: what keys and values are stored as.
    context_length: most tokens one request may hold. max_running: most requests computed at once.
    kv_bytes: memory set aside for the KV cache. prefill_chunk: most tokens computed in one step.
    threads: CPU threads; null means as many as the cores the engine is given.
    extra_args: appended to the engine's own command line, as they are.
    start_timeout_s: how long the engine may take until it answers its first token.
    api_key_env: name of the environment variable that may hold the key of a running server; never the key itself.
    ca_file: PEM file of the certificates to trust for https; null trusts the system's. verify_tls: false trusts
        any server, which the record then says.
    """

    name: str = MISSING
    python: str | None = MISSING
    install: bool = MISSING
    base_url: str | None = MISSING
    model_name: str | None = MISSING
    api: str = MISSING  # "completions" sends token ids, "chat" sends messages
    device: str | None = MISSING
    dtype: str | None = MISSING
    weight_dtype: str | None = MISSING
    kv_dtype: str | None = MISSING
    context_length: int | None = MISSING
    max_running: int | None = MISSING
    kv_bytes: int | None = MISSING
    prefix_cache: bool | None = MISSING
    prefill_chunk: int | None = MISSING
    tensor_parallel: int | None = MISSING
    threads: int | None = MISSING
    seed: int | None = MISSING
    port: int | None = MISSING
    extra_args: list[str] = MISSING
    start_timeout_s: float = MISSING
    api_key_env: str = MISSING
    ca_file: str | None = MISSING
    verify_tls: bool = MISSING

    def as_asked(self) -> Self:
        """The same engine holding every request's KV cache as these options say, whatever else runs beside it."""
        return self


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a backend can do on this device, declared rather than guessed.

    ignore_eos: output lengths can be enforced (ignore_eos and min_tokens are understood).
    return_token_ids: token ids can be had in the stream. prompt_logprobs: echo + logprobs is answered.
    logprobs_see_kv: those log-probabilities pass through the KV cache in chunks, so KV quantisation shows in them.
    logprobs_see_eviction: so does the eviction of entries from it.
    prompt_alternatives: how many most probable tokens are told beside each prompt token's own log-probability.
    no_logprobs: why there is no route to prompt log-probabilities, in words for a report ("" where there is one).
    prefix_cache: it can be switched. metrics: /metrics can be mapped to the common names.
    kv_pool_touched: the memory set aside for the KV cache is taken at the start (it is written to), not when it is
        first used; None where that is not known.
    request_kv: a request may say in its body (`kv`) how its own cache is held, and is refused before its stream where
        that cannot be; elsewhere the field itself is refused.
    caveats: what must stand beside every figure of this engine on this device; short, since names bear it.
    notes: what a reader should know of how it is run here, said once below a report's table.
    """

    ignore_eos: bool
    return_token_ids: bool
    prompt_logprobs: bool
    logprobs_see_kv: bool
    prefix_cache: bool
    metrics: bool
    logprobs_see_eviction: bool = False
    prompt_alternatives: int = 0
    no_logprobs: str = ""
    kv_pool_touched: bool | None = None
    dtypes: tuple[str, ...] = ()
    weight_dtypes: tuple[str, ...] = ()
    kv_dtypes: tuple[str, ...] = ()
    devices: tuple[str, ...] = ("cpu",)
    request_kv: bool = False
    caveats: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """How an engine's process is started; `argv[0]` is an executable, `env` is added to the harness's own."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: Path | None = None


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a server answers and what it calls the model.

    headers may carry a key from the environment; they are never written to a record, a log or a plan.
    trust: whom an https server must convince.
    """

    base_url: str  # without a trailing slash and without /v1
    model_name: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    trust: Trust = field(default_factory=Trust)


class Backend(Protocol):
    """What an adapter provides. `check` comes first; all but `install` and `prepare` are cheap and start nothing."""

    options: EngineOptions

    def capabilities(self) -> Capabilities:
        """What this engine can do here."""
        ...

    def check(self, model: ModelFiles) -> None:
        """Raise UsageError for options or models this engine cannot honour, naming what would work."""
        ...

    def install(self, say: Say) -> None:
        """Make its environment where it is missing and `backend.install=true` asks for it; minutes, told by `say`.

        `check` has passed before. Raises UsageError or EngineError where it cannot be made.
        """
        ...

    def prepare(self, model: ModelFiles, say: Say) -> None:
        """Make in the cache what this engine loads (another layout, an export), once; slow, told by `say`.

        `check` has passed before. Raises ModelError or EngineError where it cannot be made.
        """
        ...

    def launch(self, model: ModelFiles, port: int, threads: int) -> LaunchSpec | None:
        """How to start it on 127.0.0.1:port, or None where somebody else runs the server."""
        ...

    def endpoint(self, model: ModelFiles, port: int) -> Endpoint:
        """Where it answers."""
        ...

    def common_metrics(self, exposition: str) -> dict[str, float]:
        """Map the text of its /metrics to the names of `harness.core.metric_names`; unknown ones are left out."""
        ...

    def cache_reset(self) -> str | None:
        """Path of the running server that, posted to, empties its prefix cache; None where there is none."""
        ...

    def weight_size(self, model: ModelFiles) -> WeightSize | None:
        """Bytes of the weights, known before it runs, and what that rests on; None where nobody knows.

        `prepare` has been called before. An engine that says it while it runs (WEIGHTS_BYTES) is believed instead.
        """
        ...

    def versions(self) -> dict[str, str]:
        """Versions of the engine's packages, for the fingerprint ({} where they cannot be known)."""
        ...

    def request_extras(self) -> dict[str, Any]:
        """Fields added to the body of every measured request."""
        ...

    def workload_extras(self, workload: str) -> dict[str, Any]:
        """Fields added beside those to requests of this workload, for engines that treat kinds differently."""
        ...
