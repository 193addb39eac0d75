"""How the engine's options and a request's own `kv` object become the request's `KvSpec`; without torch."""

from collections.abc import Mapping
from typing import Any

from backends.kvcompress.combinations import Holder, check_together
from backends.kvcompress.scheduling import Scheduling, check_class, scheduling_of
from backends.kvcompress.spec import KvSpec, from_mapping
from backends.serving.engine import EngineConfig
from harness.core.errors import UsageError


def default_spec(config: EngineConfig) -> KvSpec:
    """What requests that say nothing get. Raises UsageError where the options lack it or cannot be."""
    own = config.own or {}
    if "kv" not in own:
        raise UsageError('--options lacks own.kv: give {"own": {"kv": {…}}} with every key of a KV setting.')
    return from_mapping(own["kv"])


def scheduling_from(config: EngineConfig) -> Scheduling:
    """What the engine's scheduler is told. Raises UsageError."""
    return scheduling_of((config.own or {})["scheduling"])


def asked(default: KvSpec, wanted: Mapping[str, Any], scheduling: Scheduling) -> tuple[KvSpec, str | None]:
    """How a request with this `kv` object is held, and its workload class; raises UsageError.

    `class` is no part of how it is held: it tells a dynamic scheduler what to expect.
    """
    kind = wanted.get("class")
    check_class(kind, scheduling)
    return default.changed({key: value for key, value in wanted.items() if key != "class"}), kind


def check_kv(config: EngineConfig, wanted: Mapping[str, Any]) -> None:
    """Raises UsageError where the `kv` object of a request cannot be on this model."""
    own = config.own or {}
    spec, _ = asked(default_spec(config), wanted, scheduling_from(config))
    check_together(spec, Holder(own["head_dim"], own["kernel"] == "compiled"))
