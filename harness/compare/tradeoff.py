"""How much of the past must stay: settings of one engine that keep a share of the KV cache, by method and share."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.compare.advice import Advice
from harness.compare.baselines import full_weights, kv_bits
from harness.compare.settings import Setting
from harness.records.paths import pick
from harness.records.reader import Run

EXACT = "everything"


@dataclass(frozen=True)
class Kept:
    """One setting. method: how it evicts and packs. share: of the past that stays, 1 where nothing is evicted."""

    setting: Setting
    method: str
    share: float


@dataclass(frozen=True)
class Tradeoff:
    """Settings of one engine under one load. exact: the one that keeps everything as computed, by full weights."""

    advice: Advice
    engine: str
    exact: Kept
    methods: Mapping[str, tuple[Kept, ...]]

    @property
    def all(self) -> tuple[Kept, ...]:
        """Every setting, the exact one first."""
        return (self.exact, *(one for points in self.methods.values() for one in points))

    @property
    def best(self) -> Kept | None:
        """The one that advice ranks first among these; None where none of them may be taken."""
        by_label = {one.setting.label: one for one in self.all}
        return next((by_label[one.label] for one in self.advice.ranked if one.label in by_label), None)


def tradeoffs(advice: Advice) -> list[Tradeoff]:
    """One for each engine and load with a setting that keeps everything and one that evicts to a share of it."""
    groups: dict[tuple[str, str], list[Kept]] = defaultdict(list)
    for setting in (*advice.ranked, *advice.excluded):
        if setting.runs and (kept := _kept(setting)) is not None:
            run = setting.runs[0]
            groups[str(pick(run.config, "backend.name")), repr(run.config.get("load"))].append(kept)
    found = []
    for (engine, _), points in groups.items():
        unchanged = [one for one in points if one.method == EXACT]
        exact = max(unchanged, key=lambda one: kv_bits(one.setting.runs[0]), default=None)
        methods: dict[str, list[Kept]] = defaultdict(list)
        for one in sorted(points, key=lambda one: (one.method, -one.share)):
            if one.method != EXACT:
                methods[one.method].append(one)
        if exact is not None and any(one.share < 1 for one in points):
            found.append(
                Tradeoff(advice, engine, exact, {name: tuple(kept) for name, kept in methods.items()})
            )
    return found


def _kept(setting: Setting) -> Kept | None:
    """None for an engine whose settings do not say what stays, and for a budget that is no share."""
    run: Run = setting.runs[0]
    kv: Any = pick(run.config, "backend.kv")
    if not isinstance(kv, Mapping):
        return None
    evict = str(kv.get("evict") or "none")
    method = " + ".join(_changes(run, kv))
    if evict == "none":
        # What nobody knows to be exact (a type of cache that is not told) is nothing to hold others against.
        return Kept(setting, method or EXACT, 1.0) if method or kv_bits(run) else None
    share = pick(kv, "budget.fraction")
    return None if share is None else Kept(setting, method, float(share))


def _changes(run: Run, kv: Mapping[str, Any]) -> list[str]:
    """What is not as computed, in words: how it evicts, packs and shares, and the weights."""
    evict, quant, values, share = (
        str(kv.get(key) or "none") for key in ("evict", "quant", "value_quant", "share")
    )
    packed = quant if values in ("none", quant) else f"{quant} keys, {values} values"
    weights = "none" if full_weights(run) else f"{pick(run.config, 'backend.weight_dtype')} weights"
    return [part for part in (evict, packed, share, weights) if part != "none"]
