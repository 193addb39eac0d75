"""Which run another one's quality is held against: one axis at a time, precision of the KV cache or of the weights.

What both axes hold equal: the engine and its device, the requests (the same token ids, so the same tokenizer), the
seed. Weights and KV cache are never changed together: a loss would have two causes.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from harness.core.exactness import EXACT_BITS, exact_bits
from harness.records.paths import pick
from harness.records.reader import Run

_ENGINE = ("name", "device", "dtype", "base_url")
# What decides how a KV cache is held, in the options of any engine.
_KV = ("kv_dtype", "kv_scheme", "kv", "eviction_keep", "eviction_start", "eviction_recent", "eviction_scores")


def baseline_of(run: Run, runs: Sequence[Run]) -> Run | None:
    """The run of the same engine, model, weights and workload whose KV cache is exact, widest type first.

    None where `runs` hold none, and for a run that is as exact itself.
    """
    wanted = (_asked(run), _weights(run))
    exact = [
        other
        for other in runs
        if other.status == "complete" and kv_bits(other) and (_asked(other), _weights(other)) == wanted
    ]
    best = max(map(kv_bits, exact), default=0)
    if best <= kv_bits(run):
        return None
    return min((other for other in exact if kv_bits(other) == best), key=_unlike(run))


def weights_baseline_of(run: Run, runs: Sequence[Run]) -> Run | None:
    """The run of the same engine, KV cache and workload whose weights are not quantised.

    What a checkpoint's weights are is not in a record. So where several models were served (a quantised checkpoint
    beside its original, with one tokenizer), the one that was run first is the original. None where there is no such
    run, and for that one itself.
    """
    wanted = (_asked(run), _kv(run))
    full = [
        other
        for other in runs
        if other.status == "complete" and full_weights(other) and (_asked(other), _kv(other)) == wanted
    ]
    return None if not full or _weights(full[0]) == _weights(run) else full[0]


def kv_bits(run: Run) -> int:
    """Bits of a stored key or value where the cache holds every token exactly; else 0, also where nobody knows."""
    return exact_bits(run.config.get("backend") or {})


def full_weights(run: Run) -> bool:
    """Whether the weights are the model's own, or in a type of floating point of at least 16 bits."""
    dtype = pick(run.config, "backend.weight_dtype")
    return dtype is None or dtype in EXACT_BITS


def kv_setting(run: Run) -> dict[str, Any]:
    """The options that say how this run's KV cache is held, without those that are null."""
    backend = run.config.get("backend") or {}
    return {key: backend[key] for key in _KV if backend.get(key) is not None}


def same_load(run: Run, other: Run) -> bool:
    """Whether both were measured under the same load, on machines of the same kind."""
    return _where(run) == _where(other)


def _where(run: Run) -> tuple[Any, ...]:
    machine = pick(run.fingerprint, "machine") or {}
    return run.config.get("load"), machine.get("cpu"), machine.get("cores"), machine.get("gpus")


def _asked(run: Run) -> tuple[Any, ...]:
    backend = run.config.get("backend") or {}
    plan = run.fingerprint.get("plan_sha256")
    return (plan, pick(run.config, "workload.name"), run.config.get("seed"), *map(backend.get, _ENGINE))


def _weights(run: Run) -> tuple[Any, ...]:
    return run.fingerprint.get("model_sha256"), pick(run.config, "backend.weight_dtype")


def _kv(run: Run) -> str:
    return repr(sorted(kv_setting(run).items(), key=lambda entry: entry[0]))


def _unlike(run: Run) -> Callable[[Run], int]:
    """How many options of the engine another run has otherwise."""
    ours: Mapping[str, Any] = run.config.get("backend") or {}

    def count(other: Run) -> int:
        theirs: Mapping[str, Any] = other.config.get("backend") or {}
        return sum(ours.get(key) != theirs.get(key) for key in {*ours, *theirs})

    return count
