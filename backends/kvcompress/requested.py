"""How the engine's options and a request's own `kv` object become the request's `KvSpec`; without torch."""

from collections.abc import Mapping
from typing import Any

from backends.kvcompress.combinations import Holder, check_together
from backends.kvcompress.spec import KvSpec, from_mapping
from backends.serving.engine import EngineConfig
from harness.core.errors import UsageError


def default_spec(config: EngineConfig) -> KvSpec:
    """What requests that say nothing get. Raises UsageError where the options lack it or cannot be."""
    own = config.own or {}
    if "kv" not in own:
        raise UsageError('--options lacks own.kv: give {"own": {"kv": {…}}} with every key of a KV setting.')
    return from_mapping(own["kv"])


def check_kv(config: EngineConfig, wanted: Mapping[str, Any]) -> None:
    """Raises UsageError where the `kv` object of a request cannot be on this model."""
    own = config.own or {}
    check_together(default_spec(config).changed(wanted), Holder(own["head_dim"], own["kernel"] == "compiled"))
