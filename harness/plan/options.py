"""What a plan is asked for, as Hydra composes it from conf/plan/; every default lives there."""

from dataclasses import dataclass, field
from typing import Any

from omegaconf import MISSING


@dataclass
class ModelOptions:
    """A model by the keys of its config.json. path: a file or folder to read them from; it is the name of a model
    that has none. source: where the keys are from.
    """

    name: str | None = MISSING
    source: str | None = MISSING
    path: str | None = MISSING
    config: dict[str, Any] = MISSING


@dataclass
class HardwareOptions:
    """One device, in the units of datasheets; see `harness.plan.setting.Hardware`. tflops: dense, at 16 bit."""

    name: str = MISSING
    title: str = MISSING
    memory_gb: float | None = MISSING
    usable: float = MISSING
    bandwidth_gb_s: float | None = MISSING
    tflops: float | None = MISSING
    tflops_f32: float | None = MISSING
    tflops_fp8: float | None = MISSING
    tflops_int8: float | None = MISSING
    price_per_hour: float | None = MISSING
    currency: str = MISSING
    source: str = MISSING
    price_source: str | None = MISSING


@dataclass
class PolicyOptions:
    """See `harness.plan.policy.Policy`."""

    name: str = MISSING
    tokens: int | None = MISSING
    fraction: float | None = MISSING


@dataclass
class PlanOptions:
    """One plan. context: tokens a request may hold, prompt and answer together; null: as many as they are.

    prompt_tokens: null: what the answer leaves of the context. runs: recorded runs to hold the roofline against.
    """

    model: ModelOptions = MISSING
    hardware: HardwareOptions = MISSING
    policy: PolicyOptions = MISSING
    weight_dtype: str = MISSING
    weight_group: int | None = MISSING
    weight_scale_bytes: float = MISSING
    kv_dtype: str = MISSING
    kv_group: int | None = MISSING
    kv_scale_bytes: float = MISSING
    devices: int = MISSING
    context: int | None = MISSING
    users: int = MISSING
    prompt_tokens: int | None = MISSING
    output_tokens: int = MISSING
    runs: list[str] = field(default_factory=list)
    results_dir: str = MISSING
    out: str | None = MISSING
