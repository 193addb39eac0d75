"""Whether a KV cache holds every key and value as it was computed, from the options of any engine."""

from collections.abc import Mapping
from typing import Any

EXACT_BITS = {"f32": 32, "bf16": 16, "f16": 16}


def evicts(backend: Mapping[str, Any]) -> bool:
    """Whether entries are dropped from the cache."""
    evict = (backend.get("kv") or {}).get("evict", "none")
    return evict != "none" or backend.get("eviction_keep") is not None


def packs(backend: Mapping[str, Any]) -> bool:
    """Whether keys and values are stored otherwise than as computed: in fewer bits, or shared between layers."""
    kv, dtype = backend.get("kv") or {}, backend.get("kv_dtype")
    changed = any(kv.get(part, "none") != "none" for part in ("quant", "share"))
    return changed or (dtype is not None and dtype not in EXACT_BITS)


def exact_bits(backend: Mapping[str, Any]) -> int:
    """Bits of a stored key or value where the cache holds every token exactly; else 0, also where nobody knows."""
    return 0 if evicts(backend) or packs(backend) else EXACT_BITS.get(str(backend.get("kv_dtype")), 0)
