"""The in-house KV-compression engine as a backend: the harness's side, which imports no torch."""

from dataclasses import asdict, replace
from typing import Any, ClassVar

from backends.base import Capabilities, LaunchSpec, Say
from backends.behind_serving import common_options, serving_command
from backends.engine_adapter import EngineAdapter, check_pool
from backends.environment import Recipe
from backends.exposition import own_metrics
from backends.gpu import nvidia_gpu_here
from backends.kvcompress.combinations import Holder, check_together
from backends.kvcompress.options import KERNELS, SCHEDULERS, KvCompressOptions, own_settings
from backends.kvcompress.scheduling import scheduling_of
from backends.kvcompress.spec import from_mapping
from harness.core.errors import UsageError
from harness.core.hf_layout import hf_folder
from harness.core.model_store import ModelFiles

_IMPORTS = ("torch", "numba", "safetensors", "aiohttp", "tokenizers", "prometheus_client")
_PACKAGES = ("torch", "numba", "safetensors")
_RECIPES = {
    "cpu": Recipe(name="kvcompress-cpu", imports=_IMPORTS, packages=_PACKAGES, megabytes=1100),
    # Triton comes with PyTorch's CUDA build alone, so that its CPU build is not taken for an engine on CUDA.
    "cuda": Recipe(
        name="kvcompress-cuda",
        imports=_IMPORTS,
        packages=(*_PACKAGES, "triton"),
        gpu=True,
        megabytes=6000,
    ),
}
_ROUNDED = "backend.kernel=torch: quantised entries are rounded, and take as much memory as exact ones"


class KvCompressBackend(EngineAdapter):
    """Continuous batching over a paged KV cache that evicts and quantises, behind `backends.serving`."""

    shown = "kvcompress"
    recipes: ClassVar = _RECIPES
    required = ("context_length", "max_running", "kv_bytes", "prefix_cache", "prefill_chunk", "seed")

    def __init__(self, options: KvCompressOptions) -> None:
        super().__init__(options)
        self._own = options

    def capabilities(self) -> Capabilities:
        """Log-probabilities are computed chunk by chunk over the cache that is judged, evicted and packed."""
        cuda = self.device_kind == "cuda"
        return Capabilities(
            ignore_eos=True,
            return_token_ids=True,
            prompt_logprobs=True,
            logprobs_see_kv=True,
            prompt_alternatives=20,
            logprobs_see_eviction=True,
            prefix_cache=False,
            metrics=True,
            request_kv=True,
            kv_pool_touched=cuda or self._own.kernel == "torch",
            dtypes=("bf16",) if cuda else ("f32",),
            weight_dtypes=("bf16",) if cuda else ("f32", "int8"),
            kv_dtypes=("bf16", "f32") if cuda else ("f32", "bf16"),
            devices=("cpu", "cuda"),
            caveats=("kvcompress on CUDA: not verified on hardware",) if cuda else (),
            notes=(_ROUNDED,) if self._own.kernel == "torch" and self._own.kv.quant != "none" else (),
        )

    def check_options(self, model: ModelFiles) -> None:
        """No prefix cache, one device, a kernel that runs on it, a KV setting that can be, a pool that holds one."""
        options = self.options
        if options.prefix_cache:
            raise UsageError(
                "backend.prefix_cache=true cannot be honoured: entries are evicted and packed for each request "
                "by itself, so none are shared. Use false."
            )
        self.check_one_device()
        if self.device_kind == "cuda" and not nvidia_gpu_here():
            raise UsageError(f"backend.device={options.device}: this machine shows no NVIDIA GPU. Use cpu.")
        self.one_of("kernel", ("torch",) if self.device_kind == "cuda" else KERNELS)
        self.one_of("scheduler", SCHEDULERS)
        scheduling_of(asdict(self._own.scheduling))
        spec = from_mapping(asdict(self._own.kv))
        check_together(spec, Holder(model.geometry.head_dim, self._own.kernel == "compiled"))
        if not spec.budget.given and spec.quant == "none":
            check_pool(options, model.geometry.kv_bytes_per_token(options.kv_dtype or ""))

    def prepare(self, model: ModelFiles, say: Say) -> None:
        """The engine reads the Hugging Face layout."""
        if self.options.base_url is None:
            hf_folder(model, say)

    def launch_command(self, model: ModelFiles, port: int, threads: int) -> LaunchSpec:
        """The serving room's command in the engine's environment."""
        loaded = {
            **common_options(self.options, threads),
            "own": own_settings(self._own, model.geometry.head_dim),
        }
        spec = serving_command(self.python(), self.options, model, hf_folder(model), port, loaded)
        # OpenMP's threads, PyTorch's, spin for a while after each operation: on the cores that numba's are to use.
        return replace(spec, env={**spec.env, "OMP_WAIT_POLICY": "passive"})

    def common_metrics(self, exposition: str) -> dict[str, float]:
        """Its names are the common ones already."""
        return own_metrics(exposition)

    def workload_extras(self, workload: str) -> dict[str, Any]:
        """The workload's name as the class of its requests, where a scheduler asks for it and knows it."""
        known = self._own.scheduler == "dynamic" and workload in self._own.scheduling.classes
        return {"kv": {"class": workload}} if known else {}

    def request_extras(self) -> dict[str, Any]:
        """Ask for ids, so that the tokens of an event are known even where its text is empty."""
        return {"return_token_ids": True}
