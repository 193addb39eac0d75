"""ONNX Runtime as a backend: the harness's side, which imports nothing of ONNX Runtime."""

from dataclasses import dataclass
from typing import Any, ClassVar

from omegaconf import MISSING

from backends.base import Capabilities, EngineOptions, LaunchSpec, Say
from backends.behind_serving import common_options, serving_command
from backends.engine_adapter import EngineAdapter, check_pool
from backends.environment import Recipe
from backends.exposition import own_metrics
from backends.gpu import nvidia_gpu_here
from backends.onnxruntime.export import CONVERTER, CUDA_WEIGHTS, SCHEMES, WEIGHTS, export, exported
from harness.core.errors import EngineError, UsageError
from harness.core.model_store import ModelFiles
from harness.core.weight_files import WeightSize, stored_size

_SERVING = ("aiohttp", "tokenizers", "prometheus_client")
_RECIPES = {
    "cpu": Recipe(
        name="onnxruntime-cpu",
        imports=("onnxruntime", *_SERVING),
        packages=("onnxruntime",),
        megabytes=200,
    ),
    "cuda": Recipe(
        name="onnxruntime-cuda",
        imports=("onnxruntime", "onnxruntime_genai", *_SERVING),
        packages=("onnxruntime-gpu", "onnxruntime-genai-cuda"),
        gpu=True,
        megabytes=2500,
    ),
}
_BATCHED = "requests are batched by this project's own loop over ONNX Runtime, not by onnxruntime-genai"
_IN_TURNS = "requests are computed one after another by onnxruntime-genai's generators, never as a batch"


@dataclass
class OnnxRuntimeOptions(EngineOptions):
    """What is particular to ONNX Runtime.

    kv_scheme: what a scale of quantised keys and values is shared by (int8_per_channel, int8_per_tensor,
        int4_per_channel); null takes the one by channel.
    """

    kv_scheme: str | None = MISSING


class OnnxRuntimeBackend(EngineAdapter):
    """Behind `backends.serving`: batches over a bound session on a CPU, genai's generators in turns on CUDA."""

    shown = "ONNX Runtime"
    recipes: ClassVar = _RECIPES
    converters: ClassVar = {"export": CONVERTER}
    required = ("context_length", "max_running", "kv_bytes", "prefix_cache", "prefill_chunk", "seed")

    def __init__(self, options: OnnxRuntimeOptions) -> None:
        super().__init__(options)
        self._own = options

    def capabilities(self) -> Capabilities:
        """Prompt log-probabilities are computed chunk by chunk over the cache that is judged."""
        cuda = self.device_kind == "cuda"
        return Capabilities(
            ignore_eos=True,
            return_token_ids=True,
            prompt_logprobs=True,
            logprobs_see_kv=True,
            prompt_alternatives=20,
            prefix_cache=False,
            metrics=True,
            kv_pool_touched=True,
            dtypes=("f16",) if cuda else ("f32",),
            weight_dtypes=tuple(CUDA_WEIGHTS if cuda else WEIGHTS),
            kv_dtypes=("f16",) if cuda else tuple(SCHEMES),
            devices=("cpu", "cuda"),
            caveats=("ONNX Runtime on CUDA: not verified on hardware",) if cuda else (),
            notes=(_IN_TURNS if cuda else _BATCHED,),
        )

    def check_options(self, model: ModelFiles) -> None:
        """No prefix cache, one device, a scheme of this KV dtype, a pool that holds a request, an export."""
        options = self.options
        if options.prefix_cache:
            raise UsageError(
                "backend.prefix_cache=true cannot be honoured: ONNX Runtime keeps no prefixes. Use false."
            )
        self.check_one_device()
        if self.device_kind == "cuda" and not nvidia_gpu_here():
            raise UsageError(f"backend.device={options.device}: this machine shows no NVIDIA GPU. Use cpu.")
        schemes = SCHEMES.get(options.kv_dtype or "", ())
        if self._own.kv_scheme not in (None, *schemes):
            choices = " or ".join(schemes) or "null"
            raise UsageError(
                f"backend.kv_scheme={self._own.kv_scheme} does not go with backend.kv_dtype={options.kv_dtype}. "
                f"Choose {choices}."
            )
        check_pool(options, model.geometry.kv_bytes_per_token(options.kv_dtype or ""))
        if (
            not exported(model, *self._form()).is_dir()
            and not CONVERTER.installed()
            and not self._to_be_made()
        ):
            raise EngineError(
                f"{model.name} has to be exported for ONNX Runtime, and the converter is not installed. Type: "
                f"{self.install_command()} (or add backend.install=true)"
            )

    def prepare(self, model: ModelFiles, say: Say) -> None:
        """Export the model, once."""
        if self.options.base_url is None:
            export(model, *self._form(), say)

    def launch_command(self, model: ModelFiles, port: int, threads: int) -> LaunchSpec:
        """The serving room's command in the engine's environment."""
        loaded = common_options(self.options, threads)
        folder = exported(model, *self._form())
        return serving_command(self.python(), self.options, model, folder, port, loaded)

    def own_weight_size(self, model: ModelFiles) -> WeightSize | None:
        """As they were exported; matrices that the library lays out anew it holds beside them."""
        return stored_size(exported(model, *self._form()), "*.onnx", "*.onnx.data")

    def versions(self) -> dict[str, str]:
        """The engine's, and of the converter the builder's: an export is keyed by the converter's exact versions."""
        found = super().versions()
        builder = "onnxruntime-genai"
        pinned = (line.split("==")[1] for line in CONVERTER.requirements() if line.startswith(f"{builder}=="))
        return {**found, builder: next(pinned)} if found else found

    def common_metrics(self, exposition: str) -> dict[str, float]:
        """Its names are the common ones already."""
        return own_metrics(exposition)

    def request_extras(self) -> dict[str, Any]:
        """Ask for ids, so that the tokens of an event are known even where its text is empty."""
        return {"return_token_ids": True}

    def _form(self) -> tuple[str, str | None, str]:
        """Weight dtype, KV scheme and execution provider of the export."""
        if self.device_kind == "cuda":
            return self.options.weight_dtype or "f16", None, "cuda"
        schemes = SCHEMES[self.options.kv_dtype or ""]
        return self.options.weight_dtype or "f32", self._own.kv_scheme or next(iter(schemes), None), "cpu"
