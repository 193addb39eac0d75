"""Files of conf/ as they are written: their values, without Hydra's list of defaults."""

from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from importlib.resources import files
from typing import Any

from harness.metrics.slo import SloOptions


def exists(path: str) -> bool:
    """Whether conf/ has this file."""
    return files("conf").joinpath(path).is_file()


@cache
def read(path: str) -> Mapping[str, Any]:
    """Its keys, interpolations as text; {} where there is none (an engine that this version does not know)."""
    from omegaconf import OmegaConf

    if not exists(path):
        return {}
    loaded = OmegaConf.create(files("conf").joinpath(path).read_text(encoding="utf-8"))
    found: Any = OmegaConf.to_container(loaded, resolve=False)
    return found if isinstance(found, dict) else {}


def usual_attainment() -> float:
    """The share of requests that must keep the limits of single ones, unless somebody says otherwise."""
    return float(read("advise/config.yaml")["attainment"])


def usual_losses() -> dict[str, float | None]:
    """The accepted loss by figure of quality, unless somebody says otherwise."""
    chosen = {key: value for entry in read("advise/config.yaml")["defaults"] for key, value in _pairs(entry)}
    values = read(f"advise/loss/{chosen['loss']}.yaml")
    return {key: value for key, value in values.items() if key not in ("name", "defaults")}


def recorded_slo(values: Mapping[str, Any]) -> SloOptions:
    """The SLO of a run's configuration; a limit that its version did not know is none."""
    limits: dict[str, Any] = {field.name: values.get(field.name) for field in fields(SloOptions)}
    return SloOptions(**limits)


def _pairs(entry: Any) -> list[tuple[str, str]]:
    return [(str(key), str(value)) for key, value in entry.items()] if isinstance(entry, Mapping) else []
