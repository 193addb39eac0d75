"""Eviction methods by the names of their papers. A new one is a file with a class and a row here."""

from collections.abc import Callable

from backends.kvcompress.contracts import Policy
from backends.kvcompress.policies.knorm import KeyNorm
from backends.kvcompress.policies.none import KeepAll
from backends.kvcompress.policies.streaming_llm import StreamingLlm
from harness.core.errors import UsageError

POLICIES: dict[str, Callable[[], Policy]] = {
    "none": KeepAll,
    "streaming_llm": StreamingLlm,
    "knorm": KeyNorm,
}


def policy(name: str) -> Policy:
    """The policy of that name; raises UsageError, naming the choices, where there is none."""
    if name not in POLICIES:
        raise UsageError(f"kv.evict={name} is unknown. Choose one of {', '.join(POLICIES)}.")
    return POLICIES[name]()
