"""How the project's dtype names map to OpenVINO's, and which of them a CPU really computes in."""

from collections.abc import Collection

from backends.cpu import cpu_flags
from harness.core.geometry import ModelGeometry

KV_PRECISIONS = {"f32": "f32", "f16": "f16", "int8": "u8", "int4": "u4"}
# OpenVINO takes an arithmetic the CPU lacks and quietly computes in f32: so it is checked before. Any flag will do.
_CPU_FLAGS = {"bf16": {"avx512_bf16", "amx_bf16", "avx_ne_convert"}, "f16": {"avx512_fp16", "amx_fp16"}}


def cpu_dtypes(flags: Collection[str]) -> tuple[str, ...]:
    """Arithmetics of an x86 CPU with these /proc/cpuinfo flags; all of them where the flags are not known."""
    fast = tuple(dtype for dtype, any_of in _CPU_FLAGS.items() if not flags or any_of & set(flags))
    return ("f32", *fast)


def device_dtypes(kind: str) -> tuple[str, ...]:
    """Arithmetics of a device; kind: cpu, gpu or npu."""
    if kind == "cpu":
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
