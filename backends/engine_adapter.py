"""What every engine has in common that the harness can start: its environment, its options' sanity, its address.

An adapter derives from `EngineAdapter` and says only what is particular to its engine.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from backends.base import Capabilities, Endpoint, EngineOptions, LaunchSpec, Say
from backends.environment import Recipe
from backends.environment_making import ensure
from backends.package_versions import versions_here, versions_of
from backends.running_server import check_running, running_endpoint
from harness.core.errors import EngineError, UsageError
from harness.core.model_store import ModelFiles
from harness.core.weight_files import WeightSize

_SIZES = ("context_length", "max_running", "kv_bytes", "prefill_chunk", "tensor_parallel")


class EngineAdapter:
    """Base of the adapters; see `backends.base.Backend` for what the methods promise.

    shown: the engine's name as people write it. recipes: how its environment is made, by device.
    converters: further environments, for what makes the files it loads, by what they are called ("export").
    required: options of which null is no choice for this engine.
    """

    shown: ClassVar[str]
    recipes: ClassVar[Mapping[str, Recipe]]
    converters: ClassVar[Mapping[str, Recipe]] = {}
    required: ClassVar[tuple[str, ...]]

    options: EngineOptions

    def __init__(self, options: EngineOptions) -> None:
        self.options = options
        self._running: Endpoint | None = None

    # What an adapter adds

    def capabilities(self) -> Capabilities:
        """See `Backend`."""
        raise NotImplementedError

    def check_options(self, model: ModelFiles) -> None:
        """Raise UsageError for what is particular to this engine; the common checks have passed."""

    def launch_command(self, model: ModelFiles, port: int, threads: int) -> LaunchSpec:
        """See `Backend.launch`; only called for an engine that is ours to start."""
        raise NotImplementedError

    def common_metrics(self, exposition: str) -> dict[str, float]:
        """See `Backend`."""
        raise NotImplementedError

    def prepare(self, model: ModelFiles, say: Say) -> None:
        """See `Backend`; nothing unless the adapter says otherwise."""

    def cache_reset(self) -> str | None:
        """See `Backend`; none unless the adapter says otherwise."""
        return None

    def own_weight_size(self, model: ModelFiles) -> WeightSize | None:
        """See `Backend.weight_size`; only called for an engine that is ours to start."""
        return None

    def request_extras(self) -> dict[str, Any]:
        """See `Backend`; none unless the adapter says otherwise."""
        return {}

    def workload_extras(self, workload: str) -> dict[str, Any]:
        """See `Backend`; none unless the adapter says otherwise."""
        return {}

    # What all share

    def check(self, model: ModelFiles) -> None:
        """Raise UsageError naming the option and the choices; EngineError where the engine is not installed.

        One that `backend.install=true` will bring is not missed here.
        """
        if self.options.base_url is not None:
            check_running(self.options)
            return
        self.one_of("api", ("completions", "chat"))
        for key in self.required:
            if getattr(self.options, key) is None:
                raise UsageError(
                    f"backend.{key}=null: {self.shown} needs a value, nothing is left to chance."
                )
        able = self.capabilities()
        self.one_of("device", able.devices, self.device_kind)
        for key, choices in (("dtype", able.dtypes), ("kv_dtype", able.kv_dtypes)):
            self.one_of(key, choices)
        if self.options.weight_dtype is not None:
            self.one_of("weight_dtype", able.weight_dtypes)
        self._check_sizes(model)
        self.check_options(model)
        if not self._to_be_made():
            self.check_installed()

    @property
    def device_kind(self) -> str:
        """The device without its number."""
        return (self.options.device or "").split(".")[0]

    def recipe(self) -> Recipe:
        """The environment of the chosen device (a library that serves several devices has one for all)."""
        return self.recipes.get(self.device_kind) or next(iter(self.recipes.values()))

    def python(self) -> str:
        """Interpreter of the engine's environment: the user's, the one that was made, or the harness's own."""
        if self.options.python is not None:
            return str(Path(self.options.python).expanduser())
        made = self.recipe().python()
        return str(made) if self.recipe().installed() else sys.executable

    def versions(self) -> dict[str, str]:
        """Versions of the engine's packages in its environment; missing ones are left out."""
        packages, python = self.recipe().packages, self.python()
        if self.options.base_url is not None:
            return {}
        return versions_here(packages) if python == sys.executable else versions_of(python, packages)

    def weight_size(self, model: ModelFiles) -> WeightSize | None:
        """See `Backend`; of a running server nothing is known."""
        return None if self.options.base_url is not None else self.own_weight_size(model)

    def install(self, say: Say) -> None:
        """See `Backend`."""
        if self._to_be_made():
            if self._missing():
                ensure(self.recipe(), say)
            for converter in self.converters.values():
                if not converter.on_request:
                    ensure(converter, say)
            self.check_installed()

    def _to_be_made(self) -> bool:
        own = self.options.python is not None or self.options.base_url is not None
        return self.options.install and not own

    def _missing(self) -> list[str]:
        versions = self.versions()
        return [package for package in self.recipe().packages if package not in versions]

    def check_installed(self) -> None:
        """Raise EngineError where the environment lacks the engine, with the command that mends it."""
        missing = self._missing()
        if not missing:
            return
        if self.options.python is not None:
            raise EngineError(
                f"{self.python()} lacks {', '.join(missing)}. Install it there, or leave backend.python out and "
                f"type: {self.install_command()}"
            )
        raise EngineError(
            f"{self.shown} is not installed. Type: {self.install_command()} (or add backend.install=true)"
        )

    def install_command(self) -> str:
        """What a person types to make the environment."""
        device = next((name for name, recipe in self.recipes.items() if recipe is self.recipe()), "cpu")
        return f"python -m harness.engines action=install engine={self.options.name} device={device}"

    def launch(self, model: ModelFiles, port: int, threads: int) -> LaunchSpec | None:
        """How to start it; None for a running server."""
        if self.options.base_url is not None:
            return None
        return self.launch_command(model, port, self.options.threads or threads)

    def endpoint(self, model: ModelFiles, port: int) -> Endpoint:
        """On loopback, or where the running server is."""
        if self.options.base_url is None:
            return Endpoint(f"http://127.0.0.1:{port}", self.options.model_name or model.name)
        if self._running is None:
            self._running = running_endpoint(self.options)
        return self._running

    def one_of(self, key: str, choices: tuple[str, ...], value: str | None = None) -> None:
        """Raise UsageError unless backend.KEY is one of `choices`."""
        value = getattr(self.options, key) if value is None else value
        if value not in choices:
            where = "" if key in ("api", "device") else f" on {self.options.device}"
            raise UsageError(
                f"backend.{key}={getattr(self.options, key)} cannot be honoured by {self.shown}{where}. "
                f"Choose {' or '.join(choices)}."
            )

    def check_one_device(self) -> None:
        """Raise UsageError where the model is to be spread over several devices, for an engine that uses one."""
        ranks = self.options.tensor_parallel
        if ranks not in (None, 1):
            raise UsageError(f"backend.tensor_parallel={ranks}: {self.shown} runs on one device; use 1.")

    def check_one_gpu(self) -> None:
        """Raise UsageError where a single GPU is named (cuda.1) for a model that is to be spread over several."""
        device, ranks = self.options.device or "", self.options.tensor_parallel or 1
        if "." in device and ranks > 1:
            raise UsageError(
                f"backend.device={device} is one GPU, and backend.tensor_parallel={ranks} needs as many. "
                "Use backend.device=cuda."
            )

    def chosen_gpu(self) -> dict[str, str]:
        """The variable that shows the engine the GPU of backend.device=cuda.N alone; {} where none is named."""
        _, _, number = (self.options.device or "").partition(".")
        return {"CUDA_VISIBLE_DEVICES": number} if number else {}

    def _check_sizes(self, model: ModelFiles) -> None:
        options = self.options
        for key in _SIZES:
            value = getattr(options, key)
            if value is not None and value < 1:
                raise UsageError(f"backend.{key}={value} must be at least 1.")
        threads, cores = options.threads, os.cpu_count() or 1
        if threads is not None and not 1 <= threads <= cores:
            raise UsageError(
                f"backend.threads={threads}: this machine has {cores} cores. Choose 1 to {cores}, "
                "or null for as many as the engine is given."
            )
        context = options.context_length
        if context is not None and context > model.geometry.context_length:
            raise UsageError(
                f"backend.context_length={context} is more than the {model.geometry.context_length} "
                f"positions of {model.name}. Choose at most that."
            )


def check_pool(options: EngineOptions, kv_bytes_per_token: float, block: int = 1) -> None:
    """Raise UsageError where backend.kv_bytes cannot hold one request of backend.context_length tokens.

    block: tokens that the pool is cut into; what is left over holds nothing.
    """
    context, pool = options.context_length or 0, options.kv_bytes or 0
    tokens = int(pool / kv_bytes_per_token) // block * block
    if tokens < context:
        raise UsageError(
            f"backend.kv_bytes={pool} holds {tokens} tokens of {options.kv_dtype} KV, less than "
            f"backend.context_length={context}. Raise the first or lower the second."
        )
