"""How the KV cache of one request is held: the vocabulary that configuration, requests and the engine share.

Imports nothing but the core, since the harness's side reads it without torch.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from harness.core.errors import UsageError

QUANTS = ("none", "int8", "fp8", "int4", "int3", "int2")
GRANULARITIES = ("tensor", "channel", "token", "token_head", "group", "kivi")
SPREADS = ("uniform", "pyramid", "adakv", "retrieval")
SHARES = ("none", "minicache")
_MOST_TOKENS = 1 << 22
_LARGEST_GROUP = 1024
CODEBOOKS = ("int4", "int3", "int2")  # of which there are Lloyd-Max levels
BITS = {"int8": 8, "fp8": 8, "int4": 4, "int3": 3, "int2": 2}


@dataclass(frozen=True, slots=True)
class Budget:
    """How much one request may keep: exactly one of the three, or none of them for everything.

    fraction: of the tokens seen (of the prompt's, while the prompt is read). tokens: per KV head, averaged over heads
    and layers. bytes: of the whole request, everything counted.
    """

    fraction: float | None
    tokens: int | None
    bytes: int | None

    @property
    def given(self) -> bool:
        """Whether anything is limited."""
        return (self.fraction, self.tokens, self.bytes) != (None, None, None)


@dataclass(frozen=True, slots=True)
class KvSpec:
    """The KV cache of one request.

    evict: name of the policy (`backends.kvcompress.policies`), "none" keeps everything.
    budget: what the policy evicts down to. spread: how the budget is shared among layers and KV heads ("retrieval":
    heads that copy from far back keep everything, the others share the rest).
    sinks, recent: the first and the latest positions, never evicted and held in full precision.
    when: evict and pack after each "chunk" of the prompt, or once after the whole "prompt".
    reindex: StreamingLLM's positions within the cache instead of the original ones.
    quant: what keys and values are packed to once they are older than `recent`. value_quant: what values are packed
    to instead, None for the same. granularity: what shares a scale ("kivi": keys by channel, values by token).
    group: values that share one where granularity is "group" (of one token's head), tokens that share one where it is
    "channel" or "kivi". codebook: Lloyd-Max levels instead of even steps. rotate: a randomised Hadamard rotation of
    each head before packing.
    share: whether neighbouring layers keep one copy.
    """

    evict: str
    budget: Budget
    spread: str
    sinks: int
    recent: int
    when: str
    reindex: bool
    quant: str
    value_quant: str | None
    granularity: str
    group: int
    codebook: bool
    rotate: bool
    share: str

    def changed(self, wanted: Mapping[str, Any]) -> "KvSpec":
        """With the keys of a request's `kv` object instead; raises UsageError for an unknown key or a bad value."""
        unknown = sorted(wanted.keys() - {field.name for field in fields(self)})
        if unknown:
            known = ", ".join(field.name for field in fields(self))
            raise UsageError(f"kv does not know {', '.join(unknown)}. It knows {known}.")
        return from_mapping({**as_mapping(self), **wanted})


def as_mapping(spec: KvSpec) -> dict[str, Any]:
    """As JSON can hold it."""
    plain = {field.name: getattr(spec, field.name) for field in fields(spec)}
    return {**plain, "budget": {field.name: getattr(spec.budget, field.name) for field in fields(Budget)}}


def from_mapping(wanted: Mapping[str, Any]) -> KvSpec:
    """Build and check; a budget may name just one of its keys. Raises UsageError."""
    given = wanted["budget"] or {}
    named = [field.name for field in fields(Budget)]
    if not isinstance(given, Mapping) or given.keys() - set(named):
        raise UsageError(f"kv.budget holds one of {', '.join(named)}.")
    spec = KvSpec(**{**wanted, "budget": Budget(**{name: given.get(name) for name in named})})
    _check_kinds(spec)
    check(spec)
    return spec


def check(spec: KvSpec) -> None:
    """Raises UsageError, naming the key and the choices, for what cannot be; policies are checked where they live."""
    for key, choices in (
        ("spread", SPREADS),
        ("when", ("chunk", "prompt")),
        ("quant", QUANTS),
        ("granularity", GRANULARITIES),
        ("share", SHARES),
    ):
        if getattr(spec, key) not in choices:
            raise UsageError(f"kv.{key}={getattr(spec, key)} is unknown. Choose one of {', '.join(choices)}.")
    _check_budget(spec)
    if spec.sinks < 0 or spec.recent < 1:
        raise UsageError("kv.sinks is at least 0 and kv.recent at least 1.")
    if max(spec.sinks, spec.recent) > _MOST_TOKENS or not 0 < spec.group <= _LARGEST_GROUP:
        raise UsageError(
            f"kv.group is 1 to {_LARGEST_GROUP}, kv.sinks and kv.recent are at most {_MOST_TOKENS}."
        )
    if spec.reindex and spec.quant != "none":
        raise UsageError(
            "kv.reindex=true moves keys to new positions, which packed ones cannot. Use kv.quant=none."
        )
    if spec.value_quant and (spec.value_quant not in QUANTS[1:] or spec.quant == "none"):
        raise UsageError(
            f"kv.value_quant={spec.value_quant} needs a kv.quant for the keys, and is one of {', '.join(QUANTS[1:])}."
        )
    if spec.codebook and not {spec.quant, spec.value_quant} & set(CODEBOOKS):
        raise UsageError("kv.codebook=true goes with int4, int3 or int2 in kv.quant or kv.value_quant.")


def _check_kinds(spec: KvSpec) -> None:
    """JSON and command lines bring values of any kind; in Python a bool is an int, here it is not."""
    kinds = {"sinks": int, "recent": int, "group": int, "reindex": bool, "codebook": bool, "rotate": bool}
    values = {
        f"kv.{key}": (getattr(spec, key), kinds.get(key, str))
        for key in KvSpec.__slots__
        if key != "budget" and (key != "value_quant" or spec.value_quant is not None)
    }
    values |= {
        f"kv.budget.{key}": (value, kind)
        for key, kind in (("fraction", float), ("tokens", int), ("bytes", int))
        if (value := getattr(spec.budget, key)) is not None
    }
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "a word"}
    for key, (value, kind) in values.items():
        right = isinstance(value, (int, float) if kind is float else kind)
        if not right or (isinstance(value, bool) and kind is not bool):
            raise UsageError(f"{key}={value} must be {words[kind]}.")


def _check_budget(spec: KvSpec) -> None:
    given = [
        value for value in (spec.budget.fraction, spec.budget.tokens, spec.budget.bytes) if value is not None
    ]
    if len(given) > 1:
        raise UsageError("kv.budget is exactly one of fraction, tokens, bytes.")
    if spec.evict == "none" and given:
        raise UsageError("kv.budget needs a policy: choose one with kv.evict.")
    if spec.evict != "none" and not given:
        raise UsageError(f"kv.evict={spec.evict} needs a budget: kv.budget.fraction, .tokens or .bytes.")
    if (given and given[0] <= 0) or (spec.budget.fraction or 0) > 1:
        raise UsageError("kv.budget is above 0, and a fraction at most 1.")


def with_full_precision(spec: KvSpec) -> KvSpec:
    """Everything kept as computed: what other settings are compared with."""
    return replace(
        spec, evict="none", budget=Budget(None, None, None), spread="uniform", quant="none", value_quant=None,
        codebook=False,
        rotate=False, reindex=False, share="none",
    )  # fmt: skip
