"""What this machine's processor can do."""

from collections.abc import Collection
from pathlib import Path

_ARITHMETIC = {  # any of the flags will do
    "bf16": {"avx512_bf16", "amx_bf16", "avx_ne_convert"},
    "f16": {"avx512_fp16", "amx_fp16"},
}


def cpu_flags() -> frozenset[str]:
    """The flags of this machine's CPU; empty where it lists none under that name (not x86)."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "flags":
                return frozenset(value.split())
    except OSError:
        pass
    return frozenset()


def cpu_dtypes(flags: Collection[str]) -> tuple[str, ...]:
    """Arithmetics of an x86 CPU with these /proc/cpuinfo flags; all of them where the flags are not known."""
    fast = tuple(dtype for dtype, any_of in _ARITHMETIC.items() if not flags or any_of & set(flags))
    return ("f32", *fast)
