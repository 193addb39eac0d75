"""The engine's options, as conf/backend/kvcompress.yaml fills them and as the engine is told them."""

from dataclasses import asdict, dataclass, field, replace
from typing import Any, Self

from omegaconf import MISSING

from backends.base import EngineOptions

KERNELS = ("compiled", "torch")
SCHEDULERS = ("static", "dynamic")


@dataclass
class BudgetOptions:
    """See `backends.kvcompress.spec.Budget`."""

    fraction: float | None = MISSING
    tokens: int | None = MISSING
    bytes: int | None = MISSING


@dataclass
class KvOptions:
    """See `backends.kvcompress.spec.KvSpec`; a request's own `kv` object has the same keys."""

    evict: str = MISSING
    budget: BudgetOptions = field(default_factory=BudgetOptions)
    spread: str = MISSING
    sinks: int = MISSING
    recent: int = MISSING
    when: str = MISSING
    reindex: bool = MISSING
    quant: str = MISSING
    value_quant: str | None = MISSING
    granularity: str = MISSING
    group: int = MISSING
    codebook: bool = MISSING
    rotate: bool = MISSING
    share: str = MISSING


@dataclass
class ClassOptions:
    """See `backends.kvcompress.scheduling.WorkloadClass`."""

    breadth: float = MISSING
    weight: float = MISSING


@dataclass
class SchedulingOptions:
    """See `backends.kvcompress.scheduling.Scheduling`."""

    headroom: int = MISSING
    tokens: int = MISSING
    least: float = MISSING
    most: float = MISSING
    classes: dict[str, ClassOptions] = field(default_factory=dict)


@dataclass
class KvCompressOptions(EngineOptions):
    """What is particular to this engine.

    kv: how the KV cache of a request is held. kernel: "compiled" unpacks and attends in one compiled loop, on a CPU;
        "torch" is the fallback, whose quantised entries are rounded but take as much memory as exact ones.
    scheduler: "static" gives every request the KV setting asked for, "dynamic" a budget by its prompt and the pool's
        pressure. scheduling: what the scheduler goes by.
    """

    kv: KvOptions = field(default_factory=KvOptions)
    kernel: str = MISSING
    scheduler: str = MISSING
    scheduling: SchedulingOptions = field(default_factory=SchedulingOptions)

    def as_asked(self) -> Self:
        """Static: by dynamic budgets alone a request keeps everything. Without eviction both are the same."""
        return self if self.kv.evict == "none" else replace(self, scheduler="static")


def own_settings(options: KvCompressOptions, head_dim: int) -> dict[str, Any]:
    """`backends.serving.engine.EngineConfig.own` of this engine. head_dim: values of one of the model's heads."""
    return {
        "kv": asdict(options.kv),
        "kernel": options.kernel,
        "scheduler": options.scheduler,
        "scheduling": asdict(options.scheduling),
        "weight_dtype": options.weight_dtype,
        "head_dim": head_dim,
    }
