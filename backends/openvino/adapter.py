"""OpenVINO GenAI as a backend: the harness's side, which imports nothing of OpenVINO."""

from pathlib import Path
from typing import Any, ClassVar

from backends.base import Capabilities, LaunchSpec, Say
from backends.behind_serving import common_options, serving_command
from backends.engine_adapter import EngineAdapter, check_pool
from backends.environment import Recipe
from backends.environment_making import ensure
from backends.exposition import own_metrics
from backends.openvino.devices import check_device
from backends.openvino.eviction import OpenVinoOptions, check_eviction, eviction_settings
from backends.openvino.export import EXPORTER, WEIGHTS, export, exported, exporter_missing, is_exported
from backends.openvino.precision import KV_PRECISIONS, device_dtypes, kv_bytes_per_token
from harness.core.errors import EngineError, UsageError
from harness.core.model_store import ModelFiles
from harness.core.weight_files import WeightSize, stored_size

_RECIPE = Recipe(
    name="openvino-cpu",
    imports=("openvino", "openvino_genai", "openvino_tokenizers", "aiohttp", "tokenizers"),
    packages=("openvino", "openvino-genai", "openvino-tokenizers"),
)
_UNVERIFIED = "OpenVINO on a {}: not verified on hardware"
_EVICTS = "KV eviction, which perplexity does not see"


class OpenVinoBackend(EngineAdapter):
    """Continuous batching of OpenVINO GenAI behind `backends.serving`."""

    shown = "OpenVINO"
    recipes: ClassVar = {"cpu": _RECIPE}
    converters: ClassVar = {"export": EXPORTER}
    required = ("context_length", "max_running", "kv_bytes", "prefix_cache", "prefill_chunk", "seed")

    def __init__(self, options: OpenVinoOptions) -> None:
        super().__init__(options)
        self._own = options

    def capabilities(self) -> Capabilities:
        """Everything the serving room offers; prompt log-probabilities only without a prefix cache."""
        logprobs = not self.options.prefix_cache
        return Capabilities(
            ignore_eos=True,
            return_token_ids=True,
            prompt_logprobs=logprobs,
            logprobs_see_kv=True,
            logprobs_see_eviction=False,  # nothing is evicted before the prompt is complete
            no_logprobs="" if logprobs else "OpenVINO gives none for tokens found in its prefix cache",
            prefix_cache=True,
            metrics=True,
            kv_pool_touched=False if self.device_kind == "cpu" else None,
            dtypes=device_dtypes(self.device_kind),
            weight_dtypes=tuple(WEIGHTS),
            kv_dtypes=tuple(KV_PRECISIONS),
            devices=("cpu", "gpu", "npu"),
            caveats=self._caveats(),
        )

    def _caveats(self) -> tuple[str, ...]:
        unverified = () if self.device_kind == "cpu" else (_UNVERIFIED.format(self.device_kind.upper()),)
        return unverified if self._own.eviction_keep is None else (*unverified, _EVICTS)

    def check_options(self, model: ModelFiles) -> None:
        """One device, a step that holds every request, a pool that holds one, eviction and weights it can do."""
        options = self.options
        self.check_one_device()
        if (options.prefill_chunk or 0) < (options.max_running or 0):
            raise UsageError(
                f"backend.prefill_chunk={options.prefill_chunk} tokens a step are too few for "
                f"backend.max_running={options.max_running} requests. Choose at least as many."
            )
        # With eviction, too: a prompt is kept whole until the first token of its answer.
        check_pool(options, kv_bytes_per_token(model.geometry, options.kv_dtype or ""))
        check_eviction(self._own)
        self._check_export(model)

    def _check_export(self, model: ModelFiles) -> None:
        weights = self.options.weight_dtype
        if is_exported(model.weights):
            if weights is not None:
                raise UsageError(
                    f"backend.weight_dtype={weights}: {model.weights} is exported already, with weights of its own. "
                    "Leave it out, or give the folder that the model came in."
                )
        elif weights is None:
            if not model.is_gguf:
                raise UsageError(
                    f"{model.weights} has to be exported for OpenVINO: say with what weights, "
                    f"backend.weight_dtype={' or '.join(WEIGHTS)}."
                )
        elif not (exported(model, weights).is_dir() or EXPORTER.installed() or self.options.install):
            raise EngineError(exporter_missing(model))

    def check_installed(self) -> None:
        """The library, and in it the device."""
        super().check_installed()
        check_device(self.python(), self.options.device or "")

    def prepare(self, model: ModelFiles, say: Say) -> None:
        """Export the model with other weights, where they are asked for; once."""
        weights = self.options.weight_dtype
        if self.options.base_url is not None or weights is None:
            return
        if self.options.install and not exported(model, weights).is_dir():
            ensure(EXPORTER, say)
        export(model, weights, say)

    def launch_command(self, model: ModelFiles, port: int, threads: int) -> LaunchSpec:
        """The serving room's command in the engine's environment."""
        loaded = common_options(self.options, threads)
        loaded["device"] = (self.options.device or "").upper()  # OpenVINO's own names: CPU, GPU.1
        loaded["kv_bytes_per_token"] = kv_bytes_per_token(model.geometry, self.options.kv_dtype or "")
        if eviction := eviction_settings(self._own):
            loaded["own"] = eviction
        return serving_command(self.python(), self.options, model, self._weights(model), port, loaded)

    def own_weight_size(self, model: ModelFiles) -> WeightSize | None:
        """As they are read. How the library keeps them (widened, laid out anew) it does not tell."""
        return stored_size(self._weights(model), "openvino_model.bin")

    def _weights(self, model: ModelFiles) -> Path:
        asked = self.options.weight_dtype
        return model.weights if asked is None else exported(model, asked)

    def common_metrics(self, exposition: str) -> dict[str, float]:
        """Its names are the common ones already."""
        return own_metrics(exposition)

    def request_extras(self) -> dict[str, Any]:
        """Ask for ids, so that the tokens of an event are known even where its text is empty."""
        return {"return_token_ids": True}
