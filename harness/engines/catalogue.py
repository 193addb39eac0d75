"""Every engine that the harness can start, on every device it runs on, as the configuration would run it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

from backends.base import Capabilities
from backends.engine_adapter import EngineAdapter
from backends.environment import Recipe
from backends.package_versions import all_here
from backends.registry import adapter_class, backend_names
from harness.config import register_schemas
from harness.core.errors import UsageError


@dataclass(frozen=True, slots=True)
class Offer:
    """An engine on a device. shown: its name as people write it. default: the device its configuration names."""

    engine: str
    shown: str
    device: str
    default: bool
    recipe: Recipe
    converters: Mapping[str, Recipe]
    abilities: Capabilities

    def place(self) -> str | None:
        """Where it is installed: its own environment, else the harness's own interpreter, else None."""
        if self.recipe.installed():
            return str(self.recipe.folder())
        return "the harness's own environment" if self.embedded() else None

    def embedded(self) -> bool:
        """Whether the interpreter that runs this has it."""
        return all_here(self.recipe.packages)

    def install_command(self, converter: str | None = None) -> str:
        """What makes or mends its environment."""
        more = f" with={converter}" if converter else ""
        return f"python -m harness.engines action=install engine={self.engine} device={self.device}{more}"


def engine_names() -> tuple[str, ...]:
    """Engines that have an environment, by name."""
    return tuple(name for name in backend_names() if issubclass(adapter_class(name), EngineAdapter))


def offers(engine: str | None = None, device: str | None = None) -> list[Offer]:
    """All of them, or those of one engine, or of one device. Raises UsageError for a name that there is not."""
    if engine is not None and engine not in engine_names():
        raise UsageError(f"There is no engine {engine}. Choose one of {', '.join(engine_names())}.")
    found = [offer for name in ([engine] if engine else engine_names()) for offer in _offers_of(name)]
    chosen = [offer for offer in found if device in (None, offer.device)]
    if not chosen:
        devices = sorted({offer.device for offer in found})
        raise UsageError(f"{engine or 'No engine'} does not run on {device}. Choose {' or '.join(devices)}.")
    return chosen


def default_offer(engine: str, device: str | None) -> Offer:
    """The engine on `device`, or on the one that its configuration names."""
    found = offers(engine, device)
    return next((offer for offer in found if offer.default), found[0])


def _offers_of(engine: str) -> Iterator[Offer]:
    kind = adapter_class(engine)
    options = _options(engine)
    usual = kind(options)
    for device in usual.capabilities().devices:
        adapter = kind(replace(options, device=device))
        default = device == usual.device_kind
        yield Offer(
            engine, kind.shown, device, default, adapter.recipe(), kind.converters, adapter.capabilities()
        )


def _options(engine: str) -> Any:
    """The typed options of conf/backend/ENGINE.yaml."""
    register_schemas()
    with initialize_config_module("conf", version_base="1.3"):
        return OmegaConf.to_object(compose("config", [f"backend={engine}"])["backend"])


def size_of(folder: Path) -> int:
    """Bytes below a folder; a link counts nothing."""
    return sum(path.lstat().st_blocks * 512 for path in folder.rglob("*") if not path.is_symlink())
