"""TensorRT-LLM as a backend: its `trtllm-serve`, in an environment of its own, on NVIDIA GPUs.

Written from its public documentation and files (options and request fields as of 1.2); nobody has run it here, and
every figure says so. It rejects request fields that it does not know, and tells its metrics as JSON, each entry once.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from omegaconf import OmegaConf

from backends.base import Capabilities, Endpoint, EngineOptions, LaunchSpec, Say
from backends.engine_adapter import EngineAdapter, check_pool
from backends.environment import Recipe
from backends.gpu import nvidia_gpu_here
from backends.tensorrt_llm_metrics import StepsSeen
from harness.core.cache import cached_folder
from harness.core.errors import UsageError
from harness.core.hf_layout import hf_folder
from harness.core.model_store import ModelFiles
from harness.core.weight_files import WeightSize, size_as

_RECIPES = {
    "cuda": Recipe(
        name="tensorrt-llm-cuda",
        imports=("torch", "tensorrt_llm"),
        packages=("tensorrt-llm", "torch", "transformers"),
        gpu=True,
        minimum_python=(3, 12),
        megabytes=30000,
    ),
}
_DTYPES = {"bf16": "bfloat16", "f16": "float16"}
_QUANTISED_KV = {"fp8": "fp8"}
_BLOCK = 32  # tokens of a KV block; its own default, set so that the pool's size is known
_CONFIG = "config.yaml"


@dataclass
class TensorRtLlmOptions(EngineOptions):
    """TensorRT-LLM needs no options beyond the common ones."""


class TensorRtLlmBackend(EngineAdapter):
    """TensorRT-LLM's OpenAI server."""

    shown = "TensorRT-LLM"
    recipes: ClassVar = _RECIPES
    required = ("context_length", "max_running", "kv_bytes", "prefix_cache", "prefill_chunk", "seed")

    def __init__(self, options: TensorRtLlmOptions) -> None:
        super().__init__(options)
        self._steps = StepsSeen(None)

    def capabilities(self) -> Capabilities:
        """What its request and answer fields offer; ids are in none of a stream's events."""
        return Capabilities(
            ignore_eos=True,
            return_token_ids=False,
            prompt_logprobs=False,
            logprobs_see_kv=False,
            no_logprobs=(
                "TensorRT-LLM gives log-probabilities of a prompt through its Python interface only, not over HTTP"
            ),
            prefix_cache=True,
            metrics=True,
            kv_pool_touched=True,
            dtypes=tuple(_DTYPES),
            weight_dtypes=self._plain(),
            kv_dtypes=(*self._plain(), *_QUANTISED_KV),
            devices=("cuda",),
            caveats=("TensorRT-LLM: not verified on hardware",),
        )

    def check_options(self, model: ModelFiles) -> None:
        """A GPU that is there, a step that holds every request, a pool that holds one, a name it can have."""
        options = self.options
        chunk, running = options.prefill_chunk or 0, options.max_running or 0
        if not nvidia_gpu_here():
            raise UsageError(
                "TensorRT-LLM needs an NVIDIA GPU, and this machine shows none. A server elsewhere can be measured: "
                "backend.base_url=http://HOST:PORT"
            )
        self.check_one_gpu()
        if chunk < max(running, _BLOCK):
            raise UsageError(
                f"backend.prefill_chunk={chunk} tokens a step are too few for backend.max_running={running} "
                f"requests and a KV block of {_BLOCK} tokens. Choose at least {max(running, _BLOCK)}."
            )
        if options.model_name is not None:
            raise UsageError(
                f"backend.model_name={options.model_name}: trtllm-serve calls a model by its folder. Leave it null."
            )
        check_pool(options, self._token_bytes(model), _BLOCK)

    def prepare(self, model: ModelFiles, say: Say) -> None:
        """It reads the Hugging Face layout; its metrics count in blocks, whose bytes follow from what we ask for."""
        if self.options.base_url is None:
            self._steps = StepsSeen(self._token_bytes(model))
            hf_folder(model, say)
            self._config(model)

    def launch_command(self, model: ModelFiles, port: int, threads: int) -> LaunchSpec:
        """`trtllm-serve` of the engine's environment, every setting in a file."""
        return LaunchSpec(
            argv=(
                str(Path(self.python()).with_name("trtllm-serve")),
                str(hf_folder(model)),
                "--host", "127.0.0.1",
                "--port", str(port),
                "--config", str(self._config(model)),
                *self.options.extra_args,
            ),
            env={"HF_HUB_OFFLINE": "1", **self.chosen_gpu()},
        )  # fmt: skip

    def endpoint(self, model: ModelFiles, port: int) -> Endpoint:
        """Ours is called as the model's folder is: it has no option for another name."""
        if self.options.base_url is not None:
            return super().endpoint(model, port)
        return Endpoint(f"http://127.0.0.1:{port}", hf_folder(model).name)

    def own_weight_size(self, model: ModelFiles) -> WeightSize | None:
        """Every value in the arithmetic's precision; quantised, the library leaves some as they are: not known."""
        plain = self.options.weight_dtype in (None, *self._plain())
        return size_as(hf_folder(model), self.options.dtype) if plain else None

    def common_metrics(self, exposition: str) -> dict[str, float]:
        """See `StepsSeen`: what was read before is remembered, since the server forgets it."""
        return self._steps.read(exposition)

    def request_extras(self) -> dict[str, Any]:
        """The seed goes with each request; the engine has none of its own."""
        return {} if self.options.seed is None else {"seed": self.options.seed}

    def _plain(self) -> tuple[str, ...]:
        return (self.options.dtype,) if self.options.dtype in _DTYPES else ()

    def _token_bytes(self, model: ModelFiles) -> float:
        return model.geometry.kv_bytes_per_token(self.options.kv_dtype or "")

    def settings(self, model: ModelFiles) -> dict[str, Any]:
        """What its configuration file holds: fields of TensorRT-LLM's `LlmArgs`."""
        options = self.options
        tokens = int((options.kv_bytes or 0) / self._token_bytes(model))
        return {
            "dtype": _DTYPES[options.dtype or ""],
            "max_batch_size": options.max_running,
            "max_num_tokens": options.prefill_chunk,  # of all requests in a step
            "max_seq_len": options.context_length,
            "tensor_parallel_size": options.tensor_parallel or 1,
            "enable_chunked_prefill": True,
            "enable_iter_perf_stats": True,  # /metrics is empty without
            "kv_cache_config": {
                "dtype": _QUANTISED_KV.get(options.kv_dtype or "", "auto"),
                "enable_block_reuse": options.prefix_cache,
                "max_tokens": tokens // _BLOCK * _BLOCK,
                "tokens_per_block": _BLOCK,
            },
        }

    def _config(self, model: ModelFiles) -> Path:
        text = OmegaConf.to_yaml(OmegaConf.create(self.settings(model)))
        key = hashlib.sha256(text.encode()).hexdigest()[:16]

        def write(folder: Path) -> None:
            (folder / _CONFIG).write_text(text)

        return cached_folder(f"tensorrt-llm/{key}", write) / _CONFIG
