"""Options of backends as the configuration would give them, for tests that need no Hydra."""

from typing import Any

from backends.base import EngineOptions
from backends.endpoint import EndpointBackend, EndpointOptions
from backends.kvcompress.adapter import KvCompressBackend
from backends.kvcompress.options import (
    BudgetOptions,
    ClassOptions,
    KvCompressOptions,
    KvOptions,
    SchedulingOptions,
)
from backends.onnxruntime.adapter import OnnxRuntimeBackend, OnnxRuntimeOptions
from backends.openvino.adapter import OpenVinoBackend
from backends.openvino.eviction import OpenVinoOptions
from backends.sglang import SglangBackend, SglangOptions
from backends.tensorrt_llm import TensorRtLlmBackend, TensorRtLlmOptions
from backends.vllm import VllmBackend, VllmOptions

_COMMON: dict[str, Any] = {
    "python": None,
    "install": False,
    "base_url": None,
    "model_name": None,
    "api": "completions",
    "device": None,
    "dtype": None,
    "weight_dtype": None,
    "kv_dtype": None,
    "context_length": None,
    "max_running": None,
    "kv_bytes": None,
    "prefix_cache": None,
    "prefill_chunk": None,
    "tensor_parallel": None,
    "threads": None,
    "seed": 0,
    "port": None,
    "extra_args": [],
    "start_timeout_s": 120.0,
    "api_key_env": "OPENAI_API_KEY",
    "ca_file": None,
    "verify_tls": True,
}
_OPENVINO: dict[str, Any] = {
    "dtype": "f32",
    "kv_dtype": "f32",
    "context_length": 5120,
    "max_running": 8,
    "kv_bytes": 1 << 30,
    "prefix_cache": False,
    "prefill_chunk": 64,
    "threads": 2,
    "device": "cpu",
}
_NO_EVICTION = dict.fromkeys(("eviction_keep", "eviction_start", "eviction_recent", "eviction_scores"))
_EVICTION = {"eviction_start": 32, "eviction_recent": 128, "eviction_scores": "norm_sum"}
_ONNXRUNTIME: dict[str, Any] = {**_OPENVINO, "kv_scheme": None}
_KV: dict[str, Any] = {
    "evict": "none",
    "spread": "uniform",
    "sinks": 4,
    "recent": 32,
    "when": "chunk",
    "reindex": False,
    "quant": "none",
    "value_quant": None,
    "granularity": "token_head",
    "group": 32,
    "codebook": False,
    "rotate": False,
    "share": "none",
}
_BUDGET: dict[str, Any] = {"fraction": None, "tokens": None, "bytes": None}
_SCHEDULING = SchedulingOptions(
    headroom=32,
    tokens=512,
    least=0.5,
    most=2.0,
    classes={"other": ClassOptions(3.0, 1.0), "rag": ClassOptions(3.1, 1.0)},
)
_KVCOMPRESS: dict[str, Any] = {
    **_OPENVINO,
    "kernel": "compiled",
    "scheduler": "static",
    "scheduling": _SCHEDULING,
}
_VLLM: dict[str, Any] = {**_OPENVINO, "prefill_chunk": 256, "threads": None, "eager": True}
_SGLANG: dict[str, Any] = {**_OPENVINO, "prefill_chunk": 256, "threads": None, "attention": None}
_TENSORRT_LLM: dict[str, Any] = {
    **_OPENVINO,
    "device": "cuda",
    "dtype": "bf16",
    "kv_dtype": "bf16",
    "threads": None,
}
_ENDPOINT: dict[str, Any] = {
    "ignore_eos": True,
    "return_token_ids": False,
    "prompt_logprobs": True,
    "logprobs_see_kv": False,
}


def openvino(**changes: Any) -> OpenVinoBackend:
    """An OpenVINO backend, small and exact (f32 KV) unless told otherwise."""
    eviction = {**_NO_EVICTION, **(_EVICTION if "eviction_keep" in changes else {})}
    return OpenVinoBackend(
        OpenVinoOptions(name="openvino", **{**_COMMON, **_OPENVINO, **eviction, **changes})
    )


def kvcompress(kv: dict[str, Any] | None = None, **changes: Any) -> KvCompressBackend:
    """A kvcompress backend that keeps everything in f32 unless told otherwise; kv: changes of the KV setting."""
    given = {**_KV, **(kv or {})}
    given["budget"] = BudgetOptions(**{**_BUDGET, **given.get("budget", {})})
    return KvCompressBackend(
        KvCompressOptions(
            name="kvcompress", **{**_COMMON, **_KVCOMPRESS, "kv": KvOptions(**given), **changes}
        )
    )


def onnxruntime(**changes: Any) -> OnnxRuntimeBackend:
    """An ONNX Runtime backend in f32 unless told otherwise."""
    return OnnxRuntimeBackend(
        OnnxRuntimeOptions(name="onnxruntime", **{**_COMMON, **_ONNXRUNTIME, **changes})
    )


def endpoint(base_url: str | None, **changes: Any) -> EndpointBackend:
    """A backend for a server that runs already."""
    return EndpointBackend(
        EndpointOptions(name="endpoint", **{**_COMMON, **_ENDPOINT, "base_url": base_url, **changes})
    )


def vllm(**changes: Any) -> VllmBackend:
    """A vLLM backend in f32 unless told otherwise."""
    return VllmBackend(VllmOptions(name="vllm", **{**_COMMON, **_VLLM, **changes}))


def sglang(**changes: Any) -> SglangBackend:
    """An SGLang backend in f32 unless told otherwise."""
    return SglangBackend(SglangOptions(name="sglang", **{**_COMMON, **_SGLANG, **changes}))


def tensorrt_llm(**changes: Any) -> TensorRtLlmBackend:
    """A TensorRT-LLM backend in bf16 unless told otherwise."""
    return TensorRtLlmBackend(
        TensorRtLlmOptions(name="tensorrt_llm", **{**_COMMON, **_TENSORRT_LLM, **changes})
    )


def unknown() -> EngineOptions:
    """Options whose name no adapter has."""
    return EngineOptions(name="vlm", **_COMMON)
