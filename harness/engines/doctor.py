"""`action=doctor`: what is missing or broken of the environments here, and the command that mends it."""

import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from importlib.util import find_spec
from itertools import chain
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from backends.environment import Recipe
from backends.environment_check import examine
from backends.environment_making import being_made
from backends.gpu import nvidia_gpu_here
from harness.core.cache import cache_root
from harness.engines.catalogue import Offer, offers, size_of


class State(Enum):
    """How a thing is; only BROKEN makes the command fail."""

    SOUND = "[green]sound[/green]  "
    ABSENT = "[dim]absent[/dim] "
    BROKEN = "[red]broken[/red] "


@dataclass(frozen=True, slots=True)
class Finding:
    """words: what was seen. cure: the command that changes it, or "". engine: it is about no converter."""

    state: State
    words: str
    cure: str = ""
    engine: bool = False


def examine_all(engine: str | None) -> int:
    """Print what was found; returns 1 where something is broken, or where an engine that was named is not here."""
    console = Console(highlight=False)
    broken, here = False, False
    for finding in chain(machine(), environments(offers(engine))):
        broken = broken or finding.state is State.BROKEN
        here = here or (finding.state is State.SOUND and finding.engine)
        cure = f" Type: {finding.cure}" if finding.cure else ""
        console.print(f"{finding.state.value}{escape(finding.words)}.{escape(cure)}", soft_wrap=True)
    return int(broken or (engine is not None and not here))


def machine() -> Iterator[Finding]:
    """What every environment needs of this machine."""
    version = ".".join(map(str, sys.version_info[:3]))
    if find_spec("ensurepip") is None:
        yield Finding(State.BROKEN, "Python's venv is missing", "sudo apt-get install -y python3-venv")
    folder = cache_root()
    free = shutil.disk_usage(_existing(folder)).free / 1e9
    yield Finding(State.SOUND, f"Python {version}; {folder} has {free:.0f} GB free")
    if not nvidia_gpu_here():
        yield Finding(State.ABSENT, "no NVIDIA GPU: engines for device=cuda cannot run here")


def environments(found: list[Offer]) -> Iterator[Finding]:
    """One finding for each environment of these engines, and for what nothing uses any more."""
    seen: set[str] = set()
    for offer in found:
        for converter, recipe in [(None, offer.recipe), *offer.converters.items()]:
            if recipe.name not in seen:
                seen.add(recipe.name)
                yield environment(offer, recipe, converter)
                yield from _old(offer, recipe)


def environment(offer: Offer, recipe: Recipe, converter: str | None) -> Finding:
    """Whether one environment is whole and works."""
    name = f"{offer.engine}, {converter or offer.device} ({recipe.name})"
    cure = offer.install_command(converter)
    if not recipe.requirements():
        return Finding(
            State.ABSENT,
            f"{name}: no versions are locked yet, since the registry that they were sought in did not have them; "
            "yours may",
            f"python -m harness.engines action=lock engine={offer.engine} device={offer.device}",
        )
    if being_made(recipe):
        return Finding(State.ABSENT, f"{name}: another process is making it right now")
    if recipe.folder().exists():
        if not recipe.complete.is_file():
            return Finding(State.BROKEN, f"{name}: its installation was interrupted", cure)
        examination = examine(recipe.python(), recipe)
        if examination.faults:
            return Finding(State.BROKEN, f"{name}: {'; '.join(examination.faults)}", cure)
        version = examination.versions[recipe.packages[0]]
        return Finding(State.SOUND, f"{name}: {version} in {recipe.folder()}", engine=converter is None)
    if converter is None and offer.embedded():
        examination = examine(Path(sys.executable), recipe)
        if examination.faults:
            faults = "; ".join(examination.faults)
            return Finding(State.BROKEN, f"{name}: in the harness's own environment {faults}", cure)
        version = examination.versions[recipe.packages[0]]
        return Finding(State.SOUND, f"{name}: {version} in the harness's own environment", engine=True)
    if recipe.gpu and not nvidia_gpu_here():
        return Finding(State.ABSENT, f"{name}: not installed, and of no use without an NVIDIA GPU")
    return Finding(State.ABSENT, f"{name}: not installed", cure)


def _old(offer: Offer, recipe: Recipe) -> Iterator[Finding]:
    for folder in recipe.leftovers():
        yield Finding(
            State.ABSENT,
            f"{folder} is of an older lock and not used any more ({size_of(folder) / 1e6:.0f} MB)",
            f"python -m harness.engines action=remove engine={offer.engine} old=true",
        )


def _existing(folder: Path) -> Path:
    while not folder.exists():
        folder = folder.parent
    return folder
