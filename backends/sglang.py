"""SGLang as a backend: its own OpenAI server, in an environment of its own, on NVIDIA GPUs or, for answers, on a CPU.

Flags, variables and metrics as SGLang 0.5.23 has them. Its kernels for CPUs need AMX and are on no registry: without
them PyTorch computes the attention, one request after another, so answers are right and speeds mean nothing.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from omegaconf import MISSING

from backends.base import Capabilities, EngineOptions, LaunchSpec, Say
from backends.engine_adapter import EngineAdapter
from backends.environment import Recipe
from backends.gpu import nvidia_gpu_here
from backends.sglang_metrics import sglang_metrics
from harness.core.errors import UsageError
from harness.core.geometry import ModelGeometry
from harness.core.hf_layout import hf_folder
from harness.core.model_store import ModelFiles
from harness.core.weight_files import WeightSize, size_as

_SERVER = "sglang.srt.entrypoints.http_server"
_RECIPES = {
    "cpu": Recipe(
        name="sglang-cpu",
        imports=("torch", "sglang_on_cpu", _SERVER),
        packages=("sglang", "torch", "transformers"),
        # Its own requirements ask for CUDA, and for another PyTorch than the one with a build for CPUs.
        alone=("sglang==0.5.23",),
        overlay="sglang-cpu",
        megabytes=3500,
    ),
    "cuda": Recipe(
        name="sglang-cuda",
        imports=("torch", "sgl_kernel", _SERVER),
        packages=("sglang", "torch", "transformers"),
        gpu=True,
        megabytes=14000,
    ),
}
_REFERENCE = "torch_native"
_DTYPES = {
    "cpu": {"f32": "float32", "bf16": "bfloat16", "f16": "float16"},
    "cuda": {"bf16": "bfloat16", "f16": "float16"},  # its attention kernels know no float32
}
# Keys and values are stored in the computation's own dtype ("auto") unless told otherwise.
_OTHER_KV = {"cpu": {"bf16": "bf16"}, "cuda": {"bf16": "bf16", "fp8": "fp8_e4m3"}}
_QUANTISED_WEIGHTS = {"cuda": {"fp8": "fp8"}}
_HELD_BACK = 6  # of its context length SGLang leaves so many tokens unused (tp_worker: max_req_input_len)
_SPARE_SLOT = 1  # the pool has one token's memory more than it may use, where padding is written
_STEPS_BETWEEN_GAUGES = 4  # of decoding; its own choice of 40 would show a pool that is long something else


@dataclass
class SglangOptions(EngineOptions):
    """What is particular to SGLang.

    attention: its --attention-backend; null is PyTorch's on a CPU and SGLang's own choice on a GPU.
    """

    attention: str | None = MISSING


class SglangBackend(EngineAdapter):
    """SGLang's OpenAI server."""

    shown = "SGLang"
    recipes: ClassVar = _RECIPES
    required = ("context_length", "max_running", "kv_bytes", "prefix_cache", "prefill_chunk", "seed")

    def __init__(self, options: SglangOptions) -> None:
        super().__init__(options)
        self._own = options

    def capabilities(self) -> Capabilities:
        """Prompt log-probabilities are computed chunk by chunk over the pool, never from a cached prefix.

        Token ids come with the stream of a completion; a chat that streams refuses to be asked for them.
        """
        return Capabilities(
            ignore_eos=True,
            return_token_ids=self.options.api == "completions",
            prompt_logprobs=True,
            logprobs_see_kv=True,
            prompt_alternatives=20,
            prefix_cache=True,
            metrics=True,
            kv_pool_touched=True,
            dtypes=tuple(_DTYPES.get(self.device_kind, {})),
            weight_dtypes=(*self._plain(), *_QUANTISED_WEIGHTS.get(self.device_kind, {})),
            kv_dtypes=tuple(dict.fromkeys((*self._plain(), *_OTHER_KV.get(self.device_kind, {})))),
            devices=("cpu", "cuda"),
            caveats=self._caveats(),
        )

    def _caveats(self) -> tuple[str, ...]:
        if self.options.base_url is not None:
            return ()  # its owner knows what it computes with
        if self.device_kind == "cuda":
            return ("SGLang on CUDA: not verified on hardware",)
        if self._attention() == _REFERENCE or self.options.python is None:
            return ("SGLang on a CPU: reference kernels, speeds are not representative",)
        return ()

    def check_options(self, model: ModelFiles) -> None:
        """A device that is there, a context that SGLang can hold to the last token, a pool that holds one request."""
        options = self.options
        ranks = options.tensor_parallel or 1
        if self.device_kind == "cuda":
            if not nvidia_gpu_here():
                raise UsageError(
                    f"backend.device={options.device}: this machine shows no NVIDIA GPU. Use cpu."
                )
            self.check_one_gpu()
        elif ranks > 1:
            raise UsageError(
                f"backend.tensor_parallel={ranks}: on a CPU SGLang needs its own kernels for that. Use 1."
            )
        elif self._attention() != _REFERENCE and options.python is None:
            # SGLang would compute by PyTorch all the same, and the figures would not be marked.
            raise UsageError(
                f"backend.attention={self._own.attention}: the environment for CPUs has no kernels but PyTorch's. "
                "Leave it out, or name an environment that has them: backend.python=ENVIRONMENT/bin/python"
            )
        self._check_context(model)

    def _check_context(self, model: ModelFiles) -> None:
        context = self.options.context_length or 0
        most = model.geometry.context_length - _HELD_BACK
        if context > most:
            raise UsageError(
                f"backend.context_length={context}: of the {model.geometry.context_length} positions of "
                f"{model.name} SGLang leaves {_HELD_BACK} unused. Choose at most {most}."
            )
        needed = context + _HELD_BACK + _SPARE_SLOT
        if self._pool_tokens(model.geometry) + _SPARE_SLOT < needed:
            least = round(needed * self._token_bytes(model.geometry))
            raise UsageError(
                f"backend.kv_bytes={self.options.kv_bytes} cannot hold backend.context_length={context} tokens of "
                f"{self.options.kv_dtype} KV, which take {least} bytes with what SGLang leaves unused. Raise the "
                "first or lower the second."
            )

    def prepare(self, model: ModelFiles, say: Say) -> None:
        """SGLang reads the Hugging Face layout."""
        hf_folder(model, say)

    def launch_command(self, model: ModelFiles, port: int, threads: int) -> LaunchSpec:
        """Its own server's command."""
        options, device = self.options, self.device_kind
        arguments = {
            "--model-path": str(hf_folder(model)),
            "--served-model-name": options.model_name or model.name,
            "--host": "127.0.0.1",
            "--port": str(port),
            "--device": device,
            "--dtype": _DTYPES[device][options.dtype or ""],
            "--kv-cache-dtype": self._kv_cache_dtype(),
            "--context-length": str((options.context_length or 0) + _HELD_BACK),
            "--max-running-requests": str(options.max_running),
            "--max-total-tokens": str(self._pool_tokens(model.geometry)),
            "--chunked-prefill-size": str(options.prefill_chunk),
            "--tensor-parallel-size": str(options.tensor_parallel or 1),
            "--random-seed": str(options.seed),
            # A model's own sampling defaults (a penalty, a temperature) would differ between engines.
            "--sampling-defaults": "openai",
            "--decode-log-interval": str(_STEPS_BETWEEN_GAUGES),
            "--log-level-http": "warning",  # no line for each request and each look at /metrics
        }
        if attention := self._attention():
            arguments["--attention-backend"] = attention
        if weights := _QUANTISED_WEIGHTS.get(device, {}).get(options.weight_dtype or ""):
            arguments["--quantization"] = weights
        switches = ["--enable-metrics", "--enable-cache-report", "--skip-server-warmup"]
        if not options.prefix_cache:
            switches.append("--disable-radix-cache")
        if device == "cpu":
            # Its scheduler spins while it waits, on cores that its own HTTP side needs.
            switches.append("--sleep-on-idle")
        command = [self.python(), "-P", "-m", self._module()]
        command += [word for pair in arguments.items() for word in pair]
        return LaunchSpec((*command, *switches, *options.extra_args), self._environment(threads))

    def own_weight_size(self, model: ModelFiles) -> WeightSize | None:
        """Every value in the arithmetic's precision; quantised, the library leaves some as they are: not known."""
        plain = self.options.weight_dtype in (None, *self._plain())
        return size_as(hf_folder(model), self.options.dtype) if plain else None

    def common_metrics(self, exposition: str) -> dict[str, float]:
        """See `sglang_metrics`."""
        return sglang_metrics(exposition, self.options.tensor_parallel or 1)

    def cache_reset(self) -> str | None:
        """Of a server that we started; it waits some seconds for requests that are just ending."""
        ours = self.options.base_url is None and self.options.prefix_cache
        return "/flush_cache?timeout=10" if ours else None

    def request_extras(self) -> dict[str, Any]:
        """Ask for ids, so that the tokens of an event are known even where its text is empty."""
        return {"return_token_ids": True} if self.options.api == "completions" else {}

    def _plain(self) -> tuple[str, ...]:
        return (self.options.dtype,) if self.options.dtype in _DTYPES.get(self.device_kind, {}) else ()

    def _attention(self) -> str | None:
        return self._own.attention or (_REFERENCE if self.device_kind == "cpu" else None)

    def _kv_cache_dtype(self) -> str:
        wanted = self.options.kv_dtype or ""
        return "auto" if wanted in self._plain() else _OTHER_KV[self.device_kind][wanted]

    def _token_bytes(self, geometry: ModelGeometry) -> float:
        return geometry.kv_bytes_per_token(self.options.kv_dtype or "")

    def _pool_tokens(self, geometry: ModelGeometry) -> int:
        """Tokens the pool may hold, so that with the spare one it takes at most backend.kv_bytes."""
        return int((self.options.kv_bytes or 0) / self._token_bytes(geometry)) - _SPARE_SLOT

    def _module(self) -> str:
        """Only the environment made for CPUs needs (and has) the module that starts it there."""
        recipe = self.recipe()
        made = self.options.python is None and self.python() == str(recipe.python())
        return "sglang_on_cpu" if made and recipe.overlay else "sglang.launch_server"

    def _environment(self, threads: int) -> dict[str, str]:
        found = {"HF_HUB_OFFLINE": "1"}  # the model is a folder
        if self.device_kind == "cpu":
            return {**found, "SGLANG_USE_CPU_ENGINE": "1", "OMP_NUM_THREADS": str(threads)}
        return {**found, **self.chosen_gpu()}
