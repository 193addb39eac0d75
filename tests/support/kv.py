"""KvSpecs for tests: everything kept and exact, but for what a test changes."""

from typing import Any

from backends.kvcompress.spec import KvSpec, from_mapping

_FULL: dict[str, Any] = {
    "evict": "none",
    "budget": None,
    "spread": "uniform",
    "sinks": 4,
    "recent": 8,
    "when": "chunk",
    "reindex": False,
    "quant": "none",
    "value_quant": None,
    "granularity": "token_head",
    "group": 16,
    "codebook": False,
    "rotate": False,
    "share": "none",
}


def spec(**changes: Any) -> KvSpec:
    """Checked as a request's would be; raises UsageError."""
    return from_mapping({**_FULL, **changes})
