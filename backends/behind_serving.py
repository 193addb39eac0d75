"""The launch of an engine that is a library: `backends.serving` in the engine's environment."""

from pathlib import Path
from typing import Any

import orjson

from backends.base import EngineOptions, LaunchSpec
from backends.bridge import bridged_environment
from harness.core.model_store import ModelFiles


def serving_command(
    python: str, options: EngineOptions, model: ModelFiles, weights: Path, port: int, loaded: dict[str, Any]
) -> LaunchSpec:
    """The serving room's command. weights: what the engine loads; loaded: the rest of its `EngineConfig`."""
    return LaunchSpec(
        argv=(
            python, "-P", "-m", "backends.serving",
            "--engine", options.name,
            "--model", str(weights),
            "--tokenizer", str(model.tokenizer_folder),
            "--model-name", options.model_name or model.name,
            "--host", "127.0.0.1",
            "--port", str(port),
            "--options", orjson.dumps(loaded).decode(),
            *options.extra_args,
        ),
        env=bridged_environment(),
    )  # fmt: skip


def common_options(options: EngineOptions, threads: int) -> dict[str, Any]:
    """The part of `backends.serving.engine.EngineConfig` that every engine of a library takes."""
    return {
        "device": options.device,
        "dtype": options.dtype,
        "kv_dtype": options.kv_dtype,
        "context_length": options.context_length,
        "max_running": options.max_running,
        "kv_bytes": options.kv_bytes,
        "prefix_cache": options.prefix_cache,
        "prefill_chunk": options.prefill_chunk,
        "threads": threads,
        "seed": options.seed,
    }
