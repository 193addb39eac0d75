"""Choices of the group `setting`: an engine together with how it holds its KV cache, or its weights.

A sweep has one axis for both, since not every engine takes every precision. The choices are data,
`conf/settings.yaml`; here they become what Hydra composes (`setting=kvcompress-kv-int4-head` takes the engine, then
the options), and the lists that experiments sweep: of the engines that are installed, what each can do on its device.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import OmegaConf

from backends.base import Capabilities
from backends.registry import backend_options, make_backend
from harness.core.errors import UsageError

AXES = ("kv", "weights")


@cache
def settings_table() -> Mapping[str, Mapping[str, Mapping[str, Mapping[str, Any]]]]:
    """Axis → engine → name → options of the backend, as `conf/settings.yaml` holds them."""
    table: Any = OmegaConf.to_container(
        OmegaConf.create((files("conf") / "settings.yaml").read_text("utf-8"))
    )
    return table


def setting_names() -> list[str]:
    """Every choice there is, whether or not its engine is installed."""
    return [
        f"{engine}-{axis}-{name}"
        for axis in AXES
        for engine, settings in settings_table()[axis].items()
        for name in settings
    ]


def register_settings() -> None:
    """Tell Hydra the choices of the group `setting`."""
    store = ConfigStore.instance()
    for axis in AXES:
        for engine, settings in settings_table()[axis].items():
            for name, options in settings.items():
                node = {"defaults": [{"override /backend": engine}, "_self_"], "backend": dict(options)}
                store.store(group="setting", name=f"{engine}-{axis}-{name}", node=node, package="_global_")


def settings_of(axis: str, engines: Sequence[str]) -> str:
    """Names, separated by commas, of the settings of these engines that can be honoured here.

    An engine that can do no more than one is left out: there is nothing to compare. Raises UsageError where no engine
    is left, with the reasons.
    """
    wanted = [name for engine in engines for name in _honoured(axis, engine)]
    if not wanted:
        raise UsageError(
            f"No installed engine can change its {axis} here: {' '.join(left_out(axis, engines))} "
            "See: python -m harness.engines action=list"
        )
    return ",".join(wanted)


def left_out(axis: str, engines: Sequence[str]) -> list[str]:
    """A sentence for each engine of which settings cannot be honoured here, with what it can do."""
    found = []
    for engine in engines:
        device, able = _device_and_abilities(engine)
        settings = settings_table()[axis].get(engine, {})
        missing = [name for name, options in settings.items() if not _can(axis, able, options)]
        if missing:
            key = "kv_dtype" if axis == "kv" else "weight_dtype"
            choices = ", ".join(able.kv_dtypes if axis == "kv" else able.weight_dtypes)
            found.append(
                f"setting={engine}-{axis}-{','.join(missing)} is left out: on {device} {engine} takes "
                f"backend.{key}={choices}."
            )
    return found


def _honoured(axis: str, engine: str) -> list[str]:
    _, able = _device_and_abilities(engine)
    settings = settings_table()[axis].get(engine, {})
    names = [f"{engine}-{axis}-{name}" for name, options in settings.items() if _can(axis, able, options)]
    return names if len(names) > 1 else []


def _can(axis: str, able: Capabilities, options: Mapping[str, Any]) -> bool:
    wanted = options.get("kv_dtype") if axis == "kv" else options.get("weight_dtype")
    return wanted is None or wanted in (able.kv_dtypes if axis == "kv" else able.weight_dtypes)


@cache
def _device_and_abilities(engine: str) -> tuple[str, Capabilities]:
    """As the engine is configured in conf/backend: what it can do on the device that stands there."""
    defaults: Any = OmegaConf.create((files("conf") / "backend" / f"{engine}.yaml").read_text("utf-8"))
    del defaults["defaults"]
    typed = OmegaConf.merge(OmegaConf.structured(backend_options()[engine]), defaults)
    whole: Any = OmegaConf.create({"backend": typed, "seed": 0})
    options: Any = OmegaConf.to_object(whole.backend)
    return options.device, make_backend(options).capabilities()
