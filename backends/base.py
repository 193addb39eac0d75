"""The contract between the harness and an engine: one vocabulary of options, what an engine can do, how it starts.

A backend is a launch spec and probes, nothing more. It imports no engine library: engines live in environments
of their own and are started as processes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from omegaconf import MISSING

from harness.core.model_store import ModelFiles
from harness.core.tls import Trust

KV_DTYPES = ("f32", "bf16", "f16", "fp8", "int8", "int4")


@dataclass
class EngineOptions:
    """One vocabulary for every engine; adapters translate. Values come from conf/backend/*.yaml.

    python: interpreter of the engine's environment; null means the harness's own.
    dtype: arithmetic of the computation. kv_dtype: what keys and values are stored as.
    context_length: most tokens one request may hold. max_running: most requests computed at once.
    kv_bytes: memory set aside for the KV cache. prefill_chunk: most tokens computed in one step.
    threads: CPU threads; null means as many as the cores the engine is given.
    extra_args: appended to the engine's own command line, as they are.
    start_timeout_s: how long the engine may take until it answers its first token.
    """

    name: str = MISSING
    python: str | None = MISSING
    base_url: str | None = MISSING
    model_name: str | None = MISSING
    api: str = MISSING  # "completions" sends token ids, "chat" sends messages
    dtype: str | None = MISSING
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


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a backend can do on this device, declared rather than guessed.

    ignore_eos: output lengths can be enforced (ignore_eos and min_tokens are understood).
    return_token_ids: token ids can be had in the stream. prompt_logprobs: echo + logprobs is answered.
    logprobs_see_kv: those log-probabilities pass through the KV cache in chunks, so KV quantisation shows in them.
    prefix_cache: it can be switched. metrics: /metrics can be mapped to the common names.
    """

    ignore_eos: bool
    return_token_ids: bool
    prompt_logprobs: bool
    logprobs_see_kv: bool
    prefix_cache: bool
    metrics: bool
    kv_dtypes: tuple[str, ...] = ()
    devices: tuple[str, ...] = ("cpu",)


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
    """What an adapter provides. All methods are cheap and start nothing; `check` comes first."""

    options: EngineOptions

    def capabilities(self) -> Capabilities:
        """What this engine can do here."""
        ...

    def check(self, model: ModelFiles) -> None:
        """Raise UsageError for options or models this engine cannot honour, naming what would work."""
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

    def versions(self) -> dict[str, str]:
        """Versions of the engine's packages, for the fingerprint ({} where they cannot be known)."""
        ...

    def request_extras(self) -> dict[str, Any]:
        """Fields added to the body of every measured request."""
        ...
