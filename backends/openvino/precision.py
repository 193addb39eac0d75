"""How the project's dtype names map to OpenVINO's, and which of them a device really computes in."""

from backends.cpu import cpu_dtypes, cpu_flags
from harness.core.geometry import ModelGeometry

KV_PRECISIONS = {"f32": "f32", "f16": "f16", "int8": "u8", "int4": "u4"}


def device_dtypes(kind: str) -> tuple[str, ...]:
    """Arithmetics of a device; kind: cpu, gpu or npu."""
    if kind == "cpu":  # an arithmetic that it lacks is taken, and quietly computed in f32
        return cpu_dtypes(cpu_flags())
    return ("f16",) if kind == "npu" else ("f32", "f16")


def kv_bytes_per_token(geometry: ModelGeometry, kv_dtype: str) -> float:
    """Expected bytes of one token's keys and values over all layers, as OpenVINO stores them on a CPU.

    f32, f16: plain. int8: beside the values a scale and a zero point in float32, for each token's value
    vector, and for each key channel of a block of 32 tokens. int4 is laid out in ways that are measured, not
    computed: this is a lower bound.
    """
    plain = geometry.kv_bytes_per_token(kv_dtype)
    if kv_dtype != "int8":
        return plain
    return plain + geometry.layers * geometry.kv_heads * 8 * (1 + geometry.head_dim / 32)
