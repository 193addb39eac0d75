"""OpenVINO GenAI as a backend: the harness's side, which imports nothing of OpenVINO."""

import importlib.metadata
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from omegaconf import MISSING

from backends.base import Capabilities, Endpoint, EngineOptions, LaunchSpec
from backends.bridge import bridged_environment
from backends.exposition import own_metrics
from backends.openvino.precision import KV_PRECISIONS, cpu_dtypes, cpu_flags, kv_bytes_per_token
from harness.core.errors import EngineError, UsageError
from harness.core.model_store import ModelFiles

_PACKAGES = ("openvino", "openvino-genai", "openvino-tokenizers")
_REQUIRED = ("context_length", "max_running", "kv_bytes", "prefix_cache", "prefill_chunk", "seed")
_ASK_VERSIONS = """
import importlib.metadata as m, json, sys
def version(name):
    try: return m.version(name)
    except m.PackageNotFoundError: return None
print(json.dumps({name: version(name) for name in sys.argv[1:]}))
"""


@dataclass
class OpenVinoOptions(EngineOptions):
    """What is special to OpenVINO. device: OpenVINO's own name, CPU, GPU or GPU.N."""

    device: str = MISSING


class OpenVinoBackend:
    """Continuous batching of OpenVINO GenAI behind `backends.serving`."""

    options: EngineOptions

    def __init__(self, options: OpenVinoOptions) -> None:
        self.options = options
        self._own = options
        self._versions: dict[str, str] | None = None

    def capabilities(self) -> Capabilities:
        """Everything the serving room offers; prompt log-probabilities only without a prefix cache."""
        return Capabilities(
            ignore_eos=True,
            return_token_ids=True,
            # The library gives none for tokens found in the prefix cache.
            prompt_logprobs=not self.options.prefix_cache,
            logprobs_see_kv=True,
            prefix_cache=True,
            metrics=True,
            kv_dtypes=tuple(KV_PRECISIONS),
            devices=("cpu", "gpu"),
        )

    def check(self, model: ModelFiles) -> None:
        """Raise UsageError naming the option and the choices; EngineError where OpenVINO is not installed."""
        options = self._own
        for key in _REQUIRED:
            if getattr(options, key) is None:
                raise UsageError(f"backend.{key}=null: OpenVINO needs a value, nothing is left to chance.")
        _one_of("api", options.api, ("completions", "chat"))
        if options.device != "CPU" and options.device.split(".")[0] != "GPU":
            raise UsageError(f"backend.device={options.device} is not served. Choose CPU, GPU or GPU.N.")
        _one_of(
            "dtype", options.dtype, cpu_dtypes(cpu_flags()) if options.device == "CPU" else ("f32", "f16")
        )
        _one_of("kv_dtype", options.kv_dtype, tuple(KV_PRECISIONS))
        if options.tensor_parallel not in (None, 1):
            raise UsageError(
                f"backend.tensor_parallel={options.tensor_parallel}: OpenVINO runs on one device; use 1."
            )
        self._check_sizes(model)
        self._check_files(model)
        self._check_installed()

    def _check_sizes(self, model: ModelFiles) -> None:
        options = self._own
        for key in ("context_length", "max_running", "kv_bytes", "prefill_chunk"):
            if getattr(options, key) < 1:
                raise UsageError(f"backend.{key}={getattr(options, key)} must be at least 1.")
        threads, cores = options.threads, os.cpu_count() or 1
        if threads is not None and not 1 <= threads <= cores:
            raise UsageError(
                f"backend.threads={threads}: this machine has {cores} cores. Choose 1 to {cores}, "
                "or null for as many as the engine is given."
            )
        context, pool = options.context_length or 0, options.kv_bytes or 0
        if context > model.geometry.context_length:
            raise UsageError(
                f"backend.context_length={context} is more than the {model.geometry.context_length} "
                f"positions of {model.name}. Choose at most that."
            )
        if (options.prefill_chunk or 0) < (options.max_running or 0):
            raise UsageError(
                f"backend.prefill_chunk={options.prefill_chunk} tokens a step are too few for "
                f"backend.max_running={options.max_running} requests. Choose at least as many."
            )
        tokens = int(pool / kv_bytes_per_token(model.geometry, options.kv_dtype or ""))
        if tokens < context:
            raise UsageError(
                f"backend.kv_bytes={pool} holds {tokens} tokens of {options.kv_dtype} KV, less than "
                f"backend.context_length={context}. Raise the first or lower the second."
            )

    def _check_files(self, model: ModelFiles) -> None:
        if not model.is_gguf and not (model.weights / "openvino_model.xml").is_file():
            raise UsageError(
                f"{model.weights} holds no openvino_model.xml. OpenVINO serves a GGUF file "
                "(model.path=FILE.gguf), or a folder exported with: optimum-cli export openvino --model FOLDER OUT"
            )

    def _check_installed(self) -> None:
        missing = [package for package in _PACKAGES if package not in self.versions()]
        if missing:
            raise EngineError(
                f"{self._python()} lacks {', '.join(missing)}. "
                'Install it: pip install "inference-harness[openvino]", or name another environment with '
                "backend.python."
            )

    def launch(self, model: ModelFiles, port: int, threads: int) -> LaunchSpec:
        """The serving room's command in the engine's environment."""
        options = self._own
        loaded: dict[str, Any] = {
            "device": options.device,
            "dtype": options.dtype,
            "kv_dtype": options.kv_dtype,
            "context_length": options.context_length,
            "max_running": options.max_running,
            "kv_bytes": options.kv_bytes,
            "kv_bytes_per_token": kv_bytes_per_token(model.geometry, options.kv_dtype or ""),
            "prefix_cache": options.prefix_cache,
            "prefill_chunk": options.prefill_chunk,
            "threads": options.threads or threads,
            "seed": options.seed,
        }
        return LaunchSpec(
            argv=(
                self._python(), "-P", "-m", "backends.serving",
                "--engine", "openvino",
                "--model", str(model.weights),
                "--tokenizer", str(model.tokenizer_folder),
                "--model-name", options.model_name or model.name,
                "--host", "127.0.0.1",
                "--port", str(port),
                "--options", orjson.dumps(loaded).decode(),
                *options.extra_args,
            ),
            env=bridged_environment(),
        )  # fmt: skip

    def endpoint(self, model: ModelFiles, port: int) -> Endpoint:
        """On loopback."""
        return Endpoint(f"http://127.0.0.1:{port}", self.options.model_name or model.name)

    def common_metrics(self, exposition: str) -> dict[str, float]:
        """Its names are the common ones already."""
        return own_metrics(exposition)

    def versions(self) -> dict[str, str]:
        """Versions of OpenVINO's packages in the engine's environment; missing ones are left out."""
        if self._versions is None:
            self._versions = (
                _versions_here() if self.options.python is None else _versions_of(self.options.python)
            )
        return self._versions

    def request_extras(self) -> dict[str, Any]:
        """Ask for ids, so that the tokens of an event are known even where its text is empty."""
        return {"return_token_ids": True}

    def _python(self) -> str:
        return str(Path(self.options.python).expanduser()) if self.options.python else sys.executable


def _one_of(key: str, value: str | None, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise UsageError(
            f"backend.{key}={value} cannot be honoured by OpenVINO here. Choose {' or '.join(choices)}."
        )


def _versions_here() -> dict[str, str]:
    found = {}
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _versions_of(python: str) -> dict[str, str]:
    command = [str(Path(python).expanduser()), "-I", "-c", _ASK_VERSIONS, *_PACKAGES]
    try:
        done = subprocess.run(command, capture_output=True, check=True, timeout=60)
        answer: dict[str, str | None] = orjson.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, orjson.JSONDecodeError) as error:
        words = (getattr(error, "stderr", None) or b"").decode(errors="replace").strip().splitlines()
        reason = words[-1] if words else getattr(error, "strerror", None) or "it gave no answer"
        raise UsageError(
            f"backend.python={python} is no Python interpreter that runs ({reason}). Name the python of the "
            "engine's environment, such as backend.python=ENVIRONMENT/bin/python."
        ) from error
    return {name: version for name, version in answer.items() if version is not None}
