"""onnxruntime-genai's generators behind the `Engine` protocol, one for each running request, taken in turns.

Each step reads at most `prefill_chunk` tokens of prompts, oldest first, then computes one token for every request
whose prompt is read. No two requests are computed together. A generator sets aside the keys and values of the most
tokens its request will ever hold, so what all running ones may hold is bounded by what is admitted.
"""

import json
from typing import Any

import numpy as np
import numpy.typing as npt

from backends.onnxruntime.row import Row
from backends.serving.engine import EngineConfig, RequestOutput, Sampling
from harness.core.errors import EngineError
from harness.core.metric_names import KV_RESERVED_BYTES, KV_USED_BYTES, REQUESTS_RUNNING

try:
    import onnxruntime
    import onnxruntime_genai
except ImportError as error:
    raise EngineError(
        f"onnxruntime-genai cannot be imported in this environment ({error}). "
        "Type: python -m harness.engines action=install engine=onnxruntime device=cuda"
    ) from error

_EXECUTION_PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}
_BYTES = {"f32": 4, "f16": 2}  # of a stored key or value


class GenaiEngine:
    """See `backends.serving.engine.Engine`; requests wait in order until the pool has room for all their tokens.

    provider: "cuda" or "cpu" (the same loop where there is no GPU). Raises EngineError where it is not to be had:
    nothing is computed elsewhere instead.
    """

    def __init__(self, config: EngineConfig, provider: str) -> None:
        self._config = config
        self._model = _loaded(config, provider)
        self._token_bytes = _kv_bytes_per_token(config)
        self.capacity_tokens = config.kv_bytes // self._token_bytes
        self._queue: dict[int, Row] = {}
        self._running: dict[int, tuple[Row, Any]] = {}

    def add(self, request_id: int, ids: list[int], sampling: Sampling) -> None:
        """Queue a request."""
        self._queue[request_id] = Row(request_id, ids, sampling, self._config)

    def cancel(self, request_id: int) -> None:
        """Forget it; its generator is freed at once."""
        self._queue.pop(request_id, None)
        self._running.pop(request_id, None)

    def has_work(self) -> bool:
        """Whether anybody waits or runs."""
        return bool(self._queue or self._running)

    def step(self) -> list[RequestOutput]:
        """Admit, read a chunk of prompts, one token for each request."""
        self._admit()
        outputs = self._read_prompts() + self._decode()
        for output in outputs:
            if output.finish:
                del self._running[output.request_id]
        return outputs

    def gauges(self) -> dict[str, float]:
        """What the generators hold, and what they have set aside between them."""
        rows = [row for row, _ in self._running.values()]
        return {
            REQUESTS_RUNNING: len(rows),
            KV_USED_BYTES: sum(row.length for row in rows) * self._token_bytes,
            KV_RESERVED_BYTES: self._set_aside() * self._token_bytes,
        }

    def close(self) -> None:
        """Drop the generators before the model."""
        self._queue.clear()
        self._running.clear()
        del self._model

    def _set_aside(self) -> int:
        return sum(row.need for row, _ in self._running.values())

    def _admit(self) -> None:
        while self._queue and len(self._running) < self._config.max_running:
            request_id, row = next(iter(self._queue.items()))
            if self._set_aside() + row.need > self.capacity_tokens:
                return
            del self._queue[request_id]
            parameters = onnxruntime_genai.GeneratorParams(self._model)
            parameters.set_search_options(max_length=row.need)
            self._running[request_id] = row, onnxruntime_genai.Generator(self._model, parameters)

    def _read_prompts(self) -> list[RequestOutput]:
        """Feed prompts; what came of the requests that wanted no more than that."""
        outputs, budget = [], self._config.prefill_chunk
        for row, generator in self._running.values():
            while row.prompt_left and budget:
                chunk = min(budget, row.prompt_left)
                generator.append_tokens(np.array(row.ids[row.length : row.length + chunk], np.int32))
                row.read(chunk, _logits(generator) if row.sampling.prompt_logprobs else None)
                budget -= chunk
            if row.prompt_left:
                break
            if row.sampling.max_tokens == 0:
                outputs.append(row.told())
        return outputs

    def _decode(self) -> list[RequestOutput]:
        outputs = []
        for row, generator in self._running.values():
            if row.prompt_left == 0 and row.sampling.max_tokens > 0:
                generator.append_tokens(np.array([row.feed], np.int32))
                outputs.append(row.take(_logits(generator)[-1]))
        return outputs


def _logits(generator: Any) -> npt.NDArray[np.float32]:
    """Of the tokens appended last: [tokens, vocabulary]. As the model gave them: `get_logits` may change them."""
    logits: npt.NDArray[np.float32] = generator.get_output("logits")[0].astype(np.float32)
    return logits


def _loaded(config: EngineConfig, provider: str) -> Any:
    """The model on that provider and no other; EngineError where it cannot be had."""
    wanted = _EXECUTION_PROVIDERS[provider]
    if provider == "cuda":
        _find_cuda(wanted)
    try:
        settings = onnxruntime_genai.Config(str(config.model))
        settings.clear_providers()
        if provider != "cpu":  # which is what is left where there is none
            settings.append_provider(provider)
        _, _, number = config.device.partition(".")
        if provider == "cuda" and number:
            settings.set_provider_option(provider, "device_id", number)
        threads = {"intra_op_num_threads": config.threads}
        settings.overlay(json.dumps({"model": {"decoder": {"session_options": threads}}}))
        model = onnxruntime_genai.Model(settings)
    except Exception as error:  # its errors are plain RuntimeErrors of many kinds
        raise EngineError(f"onnxruntime-genai cannot load {config.model} for {wanted}: {error}") from error
    if model.device_type.lower() != provider:
        raise EngineError(f"onnxruntime-genai computes on {model.device_type}, not with {wanted}.")
    return model


def _find_cuda(wanted: str) -> None:
    """Load CUDA's libraries of the environment; EngineError where either library was built without CUDA."""
    lacking = "onnxruntime" if wanted not in onnxruntime.get_available_providers() else None
    if lacking is None:
        onnxruntime.preload_dlls()
        lacking = None if onnxruntime_genai.is_cuda_available() else "onnxruntime-genai"
    if lacking:
        raise EngineError(
            f"{lacking} in this environment has no {wanted}, and the CPU is not taken instead. "
            "Type: python -m harness.engines action=install engine=onnxruntime device=cuda "
            "(or use backend.device=cpu)"
        )


def _kv_bytes_per_token(config: EngineConfig) -> int:
    """Keys and values of a token in all layers, as the export keeps them."""
    try:
        found = json.loads((config.model / "genai_config.json").read_bytes())["model"]["decoder"]
        entries = (
            int(found["num_hidden_layers"]) * int(found["num_key_value_heads"]) * int(found["head_size"])
        )
    except (OSError, ValueError, KeyError) as error:
        raise EngineError(f"{config.model} has no usable genai_config.json: {error}.") from error
    return 2 * entries * _BYTES[config.kv_dtype]
