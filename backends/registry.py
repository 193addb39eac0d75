"""Which adapter goes by which name. A table of strings: an adapter is imported when it is asked for."""

from importlib import import_module
from typing import Any

from backends.base import Backend, EngineOptions
from harness.core.errors import UsageError

# name -> (module, adapter, its options)
_ADAPTERS = {
    "endpoint": ("backends.endpoint", "EndpointBackend", "EndpointOptions"),
    "kvcompress": ("backends.kvcompress.adapter", "KvCompressBackend", "KvCompressOptions"),
    "onnxruntime": ("backends.onnxruntime.adapter", "OnnxRuntimeBackend", "OnnxRuntimeOptions"),
    "openvino": ("backends.openvino.adapter", "OpenVinoBackend", "OpenVinoOptions"),
    "sglang": ("backends.sglang", "SglangBackend", "SglangOptions"),
    "tensorrt_llm": ("backends.tensorrt_llm", "TensorRtLlmBackend", "TensorRtLlmOptions"),
    "vllm": ("backends.vllm", "VllmBackend", "VllmOptions"),
}


def backend_names() -> tuple[str, ...]:
    """Every name that `backend=` takes."""
    return tuple(sorted(_ADAPTERS))


def make_backend(options: EngineOptions) -> Backend:
    """The adapter for `options.name`; raises UsageError with the choices where there is none."""
    if options.name not in _ADAPTERS:
        raise UsageError(
            f"backend.name={options.name} is unknown. Choose one of {', '.join(backend_names())}."
        )
    module, adapter, _ = _ADAPTERS[options.name]
    backend: Backend = getattr(import_module(module), adapter)(options)
    return backend


def adapter_class(name: str) -> type[Any]:
    """The adapter called `name`, for what is known of an engine without options (its recipes)."""
    module, adapter, _ = _ADAPTERS[name]
    kind: type[Any] = getattr(import_module(module), adapter)
    return kind


def backend_options() -> dict[str, type[EngineOptions]]:
    """The typed options of every backend by its name, for the configuration's schema."""
    return {name: getattr(import_module(module), kind) for name, (module, _, kind) in _ADAPTERS.items()}
