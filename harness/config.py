"""The whole configuration as typed dataclasses, and where Hydra learns of them.

Types and the shape live here; every default value lives in conf/. Importing this module contacts nothing and
loads no engine.
"""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING, DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue

from backends.base import EngineOptions
from backends.registry import backend_options
from harness.core.errors import UsageError
from harness.core.model_store import ModelSource
from harness.core.secrets import without_secrets
from harness.engines.installed import installed_engines
from harness.load.options import (
    ClosedOptions,
    ConstantOptions,
    GammaOptions,
    LoadOptions,
    PoissonOptions,
    RampOptions,
    StepsOptions,
    TraceOptions,
)
from harness.metrics.slo import SloOptions
from harness.quality.options import (
    AgreementOptions,
    PerplexityOptions,
    QualityOptions,
    RagQualityOptions,
    ReasoningOptions,
    RecallOptions,
    SummaryQualityOptions,
)
from harness.search.options import SearchOptions, SweepRateOptions
from harness.settings import left_out, register_settings, settings_of
from workloads.options import (
    ChatOptions,
    FileOptions,
    RagOptions,
    SummarizationOptions,
    TraceWorkloadOptions,
    WorkloadOptions,
)


@dataclass
class ModelOptions:
    """Which model is served; see `harness.core.model_store.ModelSource` for the fields."""

    name: str = MISSING
    package: str | None = MISSING
    sha256: str | None = MISSING
    path: str | None = MISSING
    id: str | None = MISSING
    revision: str | None = MISSING
    raw_gguf: bool = MISSING

    def source(self) -> ModelSource:
        """The same as the model store's own type."""
        return ModelSource(**vars(self))


@dataclass
class HardwareOptions:
    """What the machine is used like, and what it costs.

    pin: give client and engine cores of their own. drift_limit: how many times longer a fixed piece of work may take
    after a run than before it, or before than after; null: it is not timed. price_per_hour: of the whole machine, for
    cost figures.
    """

    name: str = MISSING
    pin: bool = MISSING
    drift_limit: float | None = MISSING
    price_per_hour: float | None = MISSING
    currency: str = MISSING


@dataclass
class Config:
    """One run. `repeats` measures it that many times, each with a fresh engine."""

    seed: int = MISSING
    repeats: int = MISSING
    results_dir: str = MISSING
    backend: EngineOptions = MISSING
    workload: WorkloadOptions = MISSING
    load: LoadOptions = MISSING
    model: ModelOptions = MISSING
    quality: QualityOptions = field(default_factory=QualityOptions)
    slo: SloOptions = MISSING
    hardware: HardwareOptions = MISSING


# Command-line choices of these groups need a place in the schema; they are no part of a run.
@dataclass
class RootSchema(Config):
    """What Hydra composes: a run, and the names of the experiment and the setting it came from."""

    experiment: Any = None
    setting: Any = None


_RECORDED_WORKLOADS = ("file", "trace")

# Groups of which several choices may be taken at once (quality=[perplexity,recall]): each fills GROUP.CHOICE.
TAKEN_TOGETHER = ("quality",)

# Which dataclass types which choice: SCHEMAS[group][name] is what /schema/GROUP@_here_: NAME means in conf/.
SCHEMAS: dict[str, dict[str, type]] = {
    "backend": dict(backend_options()),
    "workload": {
        "chat": ChatOptions,
        "file": FileOptions,
        "rag": RagOptions,
        "summarization": SummarizationOptions,
        "trace": TraceWorkloadOptions,
    },
    "load": {
        "closed": ClosedOptions,
        "constant": ConstantOptions,
        "gamma": GammaOptions,
        "poisson": PoissonOptions,
        "ramp": RampOptions,
        "search": SearchOptions,
        "steps": StepsOptions,
        "sweep_rate": SweepRateOptions,
        "trace": TraceOptions,
    },
    "model": {"options": ModelOptions},
    "quality": {
        "agreement": AgreementOptions,
        "perplexity": PerplexityOptions,
        "rag": RagQualityOptions,
        "reasoning": ReasoningOptions,
        "recall": RecallOptions,
        "summary": SummaryQualityOptions,
    },
    "slo": {"options": SloOptions},
    "hardware": {"options": HardwareOptions},
}


def register_schemas(tell: Callable[[str], None] = lambda line: None) -> None:
    """Tell Hydra the types of SCHEMAS and the root, the choices of `setting`, and the words that conf/ uses in ${…}.

    installed_engines: which ones `experiment=engines` means. settings: which choices of `setting` are swept over by
    `kv_granularity` and `weight_precision`; tell: told once what is left out of them, and why. where_set: a default
    of a key that means something only where another is set; null elsewhere, so that a value given in vain shows.
    """
    OmegaConf.register_new_resolver("installed_engines", lambda: ",".join(installed_engines()), replace=True)
    told: set[str] = set()

    def settings(axis: str) -> str:
        engines = installed_engines()
        for line in [] if axis in told else left_out(axis, engines):
            tell(line)
        told.add(axis)
        return settings_of(axis, engines)

    OmegaConf.register_new_resolver("settings", settings, replace=True)
    OmegaConf.register_new_resolver(
        "where_set", lambda other, default: None if other is None else default, replace=True
    )
    register_settings()
    store = ConfigStore.instance()
    store.store(group="schema", name="root", node=RootSchema)
    for group, choices in SCHEMAS.items():
        for name, options in choices.items():
            store.store(group=f"schema/{group}", name=name, node=options)


def typed(composed: DictConfig) -> Config:
    """The composed configuration as plain dataclasses. Raises UsageError for a value that is still missing."""
    try:
        values: Any = OmegaConf.to_object(composed)
    except MissingMandatoryValue as error:
        raise UsageError(f"A value is missing: {str(error).splitlines()[0]}") from error
    config = Config(**{name: getattr(values, name) for name in Config.__dataclass_fields__})
    for key, value, least in (("repeats", config.repeats, 1), ("seed", config.seed, 0)):
        if value < least:
            raise UsageError(f"{key}={value}: must be at least {least}.")
    if not config.results_dir.strip():
        raise UsageError("results_dir= is empty. Name a folder, such as results_dir=results.")
    price = config.hardware.price_per_hour
    if price is not None and not 0 < price < math.inf:
        raise UsageError(
            f"hardware.price_per_hour={price:g}: a price is above 0; null leaves cost out of the figures."
        )
    drift = config.hardware.drift_limit
    if drift is not None and not 1 < drift < math.inf:
        raise UsageError(
            f"hardware.drift_limit={drift:g}: the slower look may take so many times as long as the faster one, "
            "such as 1.2; null leaves both out."
        )
    for key, limit in vars(config.slo).items():
        if isinstance(limit, float) and limit <= 0:
            raise UsageError(
                f"slo.{key}={limit:g}: a limit is a number of milliseconds above 0, or null for none."
            )
    return _with_enough_requests(config)


def shown_config(config: Config) -> dict[str, Any]:
    """The configuration as records hold it: an engine's own arguments without the keys in them."""
    values = asdict(config)
    values["backend"]["extra_args"] = without_secrets(config.backend.extra_args)
    return values


def _with_enough_requests(config: Config) -> Config:
    """Who asks to measure more requests than the workload draws wants more of them drawn.

    A plan that was recorded elsewhere holds what it holds.
    """
    wanted, drawn = config.load.requests, config.workload.requests
    if wanted is None or drawn is None or wanted <= drawn or config.workload.name in _RECORDED_WORKLOADS:
        return config
    return replace(config, workload=replace(config.workload, requests=wanted))
