"""OpenVINO GenAI as a backend: the harness's side, which imports nothing of OpenVINO."""

from dataclasses import dataclass
from typing import Any, ClassVar

from backends.base import Capabilities, EngineOptions, LaunchSpec
from backends.behind_serving import common_options, serving_command
from backends.cpu import cpu_flags
from backends.engine_adapter import EngineAdapter, check_pool
from backends.environment import Recipe
from backends.exposition import own_metrics
from backends.openvino.precision import KV_PRECISIONS, cpu_dtypes, kv_bytes_per_token
from harness.core.errors import UsageError
from harness.core.model_store import ModelFiles

_RECIPE = Recipe(
    name="openvino-cpu",
    imports=("openvino", "openvino_genai", "openvino_tokenizers", "aiohttp", "tokenizers"),
    packages=("openvino", "openvino-genai", "openvino-tokenizers"),
)


@dataclass
class OpenVinoOptions(EngineOptions):
    """OpenVINO needs no options beyond the common ones."""


class OpenVinoBackend(EngineAdapter):
    """Continuous batching of OpenVINO GenAI behind `backends.serving`."""

    shown = "OpenVINO"
    recipes: ClassVar = {"cpu": _RECIPE}
    required = ("context_length", "max_running", "kv_bytes", "prefix_cache", "prefill_chunk", "seed")

    def capabilities(self) -> Capabilities:
        """Everything the serving room offers; prompt log-probabilities only without a prefix cache."""
        logprobs = not self.options.prefix_cache
        return Capabilities(
            ignore_eos=True,
            return_token_ids=True,
            prompt_logprobs=logprobs,
            logprobs_see_kv=True,
            no_logprobs="" if logprobs else "OpenVINO gives none for tokens found in its prefix cache",
            prefix_cache=True,
            metrics=True,
            dtypes=cpu_dtypes(cpu_flags()) if self.device_kind == "cpu" else ("f32", "f16"),
            kv_dtypes=tuple(KV_PRECISIONS),
            devices=("cpu", "gpu"),
        )

    def check_options(self, model: ModelFiles) -> None:
        """One device, a step that holds every request, a pool that holds one, files it can read."""
        options = self.options
        if options.tensor_parallel not in (None, 1):
            raise UsageError(
                f"backend.tensor_parallel={options.tensor_parallel}: OpenVINO runs on one device; use 1."
            )
        if (options.prefill_chunk or 0) < (options.max_running or 0):
            raise UsageError(
                f"backend.prefill_chunk={options.prefill_chunk} tokens a step are too few for "
                f"backend.max_running={options.max_running} requests. Choose at least as many."
            )
        check_pool(options, kv_bytes_per_token(model.geometry, options.kv_dtype or ""))
        if not model.is_gguf and not (model.weights / "openvino_model.xml").is_file():
            raise UsageError(
                f"{model.weights} holds no openvino_model.xml. OpenVINO serves a GGUF file "
                "(model.path=FILE.gguf), or a folder exported with: optimum-cli export openvino --model FOLDER OUT"
            )

    def launch_command(self, model: ModelFiles, port: int, threads: int) -> LaunchSpec:
        """The serving room's command in the engine's environment."""
        loaded = common_options(self.options, threads)
        loaded["device"] = (self.options.device or "").upper()  # OpenVINO's own names: CPU, GPU.1
        loaded["kv_bytes_per_token"] = kv_bytes_per_token(model.geometry, self.options.kv_dtype or "")
        return serving_command(self.python(), self.options, model, model.weights, port, loaded)

    def common_metrics(self, exposition: str) -> dict[str, float]:
        """Its names are the common ones already."""
        return own_metrics(exposition)

    def request_extras(self) -> dict[str, Any]:
        """Ask for ids, so that the tokens of an event are known even where its text is empty."""
        return {"return_token_ids": True}
