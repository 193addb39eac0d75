"""Eviction methods by the names of their papers. A new one is a file with a class and a row here.

A table of strings, so that a name can be checked where there is no torch: a method is imported when it is used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from harness.core.errors import UsageError

if TYPE_CHECKING:
    from backends.kvcompress.contracts import Policy

# name -> "module:class", below this package
POLICIES: dict[str, str] = {
    "auto": "auto:Auto",
    "none": "none:KeepAll",
    "streaming_llm": "streaming_llm:StreamingLlm",
    "h2o": "h2o:HeavyHitters",
    "h2o_rate": "h2o_rate:AttentionRate",
    "snapkv": "snapkv:SnapKv",
    "tova": "tova:LastQuery",
    "knorm": "knorm:KeyNorm",
    "keydiff": "keydiff:KeyDiff",
    "lagkv": "lagkv:LagKv",
    "expected_attention": "expected_attention:ExpectedAttention",
    "random": "random:Random",
}

# Policies that a model's turned positions do not mislead (`contracts.Policy.window` and `.attention` tell the same).
READ_NO_QUERIES = ("none", "streaming_llm", "knorm", "keydiff", "lagkv", "random")


def check_policy(name: str) -> None:
    """Raises UsageError, naming the choices, where there is none of that name."""
    if name not in POLICIES:
        raise UsageError(f"kv.evict={name} is unknown. Choose one of {', '.join(POLICIES)}.")


def policy(name: str) -> "Policy":
    """The policy of that name; raises UsageError, naming the choices, where there is none."""
    check_policy(name)
    module, _, kind = POLICIES[name].partition(":")
    made: Policy = getattr(import_module(f"{__name__}.{module}"), kind)()
    return made
