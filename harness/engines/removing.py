"""`action=remove`: gives back the disk space of an engine's environments."""

import shutil
from pathlib import Path

import psutil

from backends.environment import Recipe
from backends.environment_making import discard
from harness.core.cache import locked
from harness.core.errors import UsageError
from harness.engines.catalogue import offers, size_of


def remove(engine: str, device: str | None, old: bool) -> None:
    """Remove the engine's environments, or only what older locks left of them; converters go with the last device.

    Raises UsageError where a process still runs in one.
    """
    found = offers(engine, device)
    recipes = {offer.recipe.name: offer.recipe for offer in found}
    if device is None:
        recipes |= {recipe.name: recipe for recipe in found[0].converters.values()}
    folders = [
        folder
        for recipe in recipes.values()
        for folder in [
            *recipe.leftovers(),
            *([] if old or not recipe.folder().exists() else [recipe.folder()]),
        ]
    ]
    if not folders:
        print(f"There is nothing of {found[0].shown} to remove.")
        return
    for folder in folders:
        refuse_in_use(folder)
    for recipe in recipes.values():
        _remove(recipe, [folder for folder in folders if folder.name.startswith(f"{recipe.name}-")])


def refuse_in_use(folder: Path) -> None:
    """Raise UsageError where a process was started from the environment in `folder`."""
    for process in psutil.process_iter(["pid", "cmdline"]):
        command = process.info["cmdline"] or [""]
        if command[0].startswith(f"{folder}/"):
            raise UsageError(f"{folder} is in use by process {process.info['pid']}. End it first.")


def _remove(recipe: Recipe, folders: list[Path]) -> None:
    for folder in folders:
        with locked(folder, lambda: print(f"Waiting for another process that makes {recipe.name}")):
            freed = size_of(folder)
            if folder == recipe.folder():
                discard(recipe)
            else:
                shutil.rmtree(folder)
        folder.with_name(f"{recipe.name}.log").unlink(missing_ok=True)
        print(f"Removed {folder} ({freed / 1e6:.0f} MB)")
