"""From KEY=VALUE arguments to what a plan is calculated from; what cannot be becomes one sentence."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.core.errors import UsageError
from harness.plan.choices import PLAN
from harness.plan.config_json import geometry_of, read_config
from harness.plan.geometry import Geometry
from harness.plan.options import HardwareOptions, ModelOptions, PlanOptions
from harness.plan.setting import Hardware


def options_from(arguments: Sequence[str]) -> PlanOptions:
    """The plan that the command line asks for. Raises UsageError, in one sentence, for what cannot be read."""
    made: PlanOptions = PLAN.composed(arguments)
    return made


def geometry_from(options: ModelOptions) -> Geometry:
    """The model's geometry. Raises UsageError where model=config names no file, or the file is not enough."""
    if options.path is None and not options.config:
        raise UsageError("model=config needs a file: model.path=FOLDER_OR_CONFIG_JSON.")
    config: Mapping[str, Any] = options.config
    if options.path is not None:
        config = {**read_config(Path(options.path).expanduser()), **options.config}
    return geometry_of(config, options.name or str(options.path))


def hardware_from(options: HardwareOptions) -> Hardware:
    """The device in bytes and per second. Raises UsageError for a figure that cannot be, a price of 0 among them."""
    for key in ("memory_gb", "bandwidth_gb_s", "tflops", "tflops_f32", "tflops_fp8", "tflops_int8"):
        if (value := getattr(options, key)) is not None and not 0 < value < float("inf"):
            raise UsageError(f"hardware.{key}={value:g}: must be above 0, or null where it is not known.")
    if not 0 < options.usable <= 1:
        raise UsageError(f"hardware.usable={options.usable:g}: a share of the memory, above 0 and at most 1.")
    price = options.price_per_hour
    if price is not None and not 0 < price < float("inf"):
        raise UsageError(
            f"hardware.price_per_hour={price:g}: a price is above 0; null leaves cost out of the plan."
        )
    return Hardware(
        name=options.name,
        title=options.title,
        memory_bytes=_times(options.memory_gb, 1e9) or _memory_of_this_machine(),
        usable=options.usable,
        bytes_per_s=_times(options.bandwidth_gb_s, 1e9),
        flops=_times(options.tflops, 1e12),
        flops_f32=_times(options.tflops_f32, 1e12),
        flops_fp8=_times(options.tflops_fp8, 1e12),
        flops_int8=_times(options.tflops_int8, 1e12),
        price_per_hour=price,
        currency=options.currency,
        source=options.source,
        price_source=options.price_source,
    )


def all_cards() -> list[Hardware]:
    """Every device of conf/plan/hardware whose memory is part of the file, the smallest first."""
    found = []
    for name in PLAN.choices("hardware"):
        options = PLAN.composed([f"hardware={name}"])
        if options.hardware.memory_gb is not None:
            found.append(hardware_from(options.hardware))
    return sorted(found, key=lambda card: (card.memory_bytes, card.name))


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _memory_of_this_machine() -> float:
    import psutil

    return float(psutil.virtual_memory().total)
