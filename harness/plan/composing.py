"""From KEY=VALUE arguments to a typed plan: Hydra composes conf/plan/, and what is wrong becomes one sentence."""

import difflib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_module
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from harness.core.errors import UsageError
from harness.plan.choices import GROUPS, choices_of
from harness.plan.config_json import geometry_of, read_config
from harness.plan.geometry import Geometry
from harness.plan.options import HardwareOptions, ModelOptions, PlanOptions, PolicyOptions
from harness.plan.setting import Hardware

_PACKAGE = "conf.plan"


def options_from(arguments: list[str]) -> PlanOptions:
    """The plan that the command line asks for. Raises UsageError, in one sentence, for what cannot be read."""
    for argument in arguments:
        _check_form(argument)
    try:
        with _hydra():
            composed = compose(config_name="config", overrides=arguments)
        values: Any = OmegaConf.to_object(composed)
    except (HydraException, OmegaConfBaseException) as error:
        raise UsageError(_explained(error, arguments)) from error
    return PlanOptions(**{name: getattr(values, name) for name in PlanOptions.__dataclass_fields__})


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
    with _hydra():
        for name in choices_of("hardware"):
            options: Any = OmegaConf.to_object(compose(config_name="config", overrides=[f"hardware={name}"]))
            if options.hardware.memory_gb is not None:
                found.append(hardware_from(options.hardware))
    return sorted(found, key=lambda card: (card.memory_bytes, card.name))


def _hydra() -> Any:
    store = ConfigStore.instance()
    store.store(group="schema", name="plan", node=PlanOptions)
    store.store(group="schema/plan_model", name="options", node=ModelOptions)
    store.store(group="schema/plan_hardware", name="options", node=HardwareOptions)
    store.store(group="schema/plan_policy", name="options", node=PolicyOptions)
    GlobalHydra.instance().clear()
    return initialize_config_module(_PACKAGE, version_base="1.3", job_name="plan")


def _check_form(argument: str) -> None:
    key, equals, value = argument.partition("=")
    if not equals or not re.fullmatch(r"[\w.]+", key):
        raise UsageError(f"{argument!r} is not understood: write KEY=VALUE, see --help.")
    if key in GROUPS and value not in (names := choices_of(key)):
        close = difflib.get_close_matches(value, names, n=1, cutoff=0.4)
        hint = f" Did you mean {key}={close[0]}?" if close else ""
        raise UsageError(f"{key}={value}: there is no such choice.{hint} Choices: {', '.join(names)}.")


def _explained(error: Exception, arguments: list[str]) -> str:
    text = str(error)
    if match := re.search(r"Could not override '([^']+)'", text):
        key = match.group(1)
        if key.startswith("model.config."):
            return f"{key}: this model's config.json has no such key. Write your own: model=config model.path=FILE."
        known = list(_known_keys(OmegaConf.structured(PlanOptions)))
        close = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
        hint = f" Did you mean {close[0]}?" if close else ""
        parent = key.partition(".")[0] + "."
        siblings = [name for name in known if name.startswith(parent)] or [n for n in known if "." not in n]
        return f"There is no key {key}.{hint} Keys: {', '.join(siblings)}."
    if match := re.search(r"Error merging override (\S+)", text):
        cause = str(error.__cause__ or error)
        kinds = {
            "nteger": "a whole number",
            "Float": "a number",
            "ListConfig": "a list in brackets, such as [A,B]",
        }
        kind = next((words for mark, words in kinds.items() if mark in cause), "of another type")
        return f"{match.group(1)}: the value must be {kind}."
    if match := re.search(r"Ambiguous value for argument '([^']+)'", text):
        return f"{match.group(1)}: these are several values; a plan has one."
    broken = next((a for a in arguments if a in text), arguments[0] if arguments else "")
    return (
        f"{broken!r} cannot be read ({text.strip().splitlines()[0]}). Quote a value with special characters."
    )


def _known_keys(node: DictConfig, prefix: str = "") -> Iterator[str]:
    types = {"model": ModelOptions, "hardware": HardwareOptions, "policy": PolicyOptions}
    for key in node:
        if not prefix and key in types:
            yield from _known_keys(OmegaConf.structured(types[str(key)]), f"{key}.")
        else:
            yield prefix + str(key)


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _memory_of_this_machine() -> float:
    import psutil

    return float(psutil.virtual_memory().total)
