"""`action=lock`: resolves what an environment shall hold into exact versions of everything in it.

uv resolves from the registry's metadata, so that even an environment of many gigabytes is locked in seconds and on
a machine that could not run it; for every Python and processor at once, of which Linux's are kept.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path

from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from backends.environment import Recipe
from harness.core.errors import EngineError, UsageError
from harness.engines.catalogue import offers

_OLDEST = "3.11"
_PYTHONS = ("3.11", "3.12", "3.13", "3.14")
_MACHINES = ("x86_64", "aarch64")


def lock(engine: str | None, device: str | None) -> None:
    """Renew the locks of one engine or of all, converters included. Raises EngineError where it cannot be done."""
    found = offers(engine, device)
    recipes = {
        recipe.name: recipe for offer in found for recipe in (offer.recipe, *offer.converters.values())
    }
    failed = []
    for recipe in recipes.values():
        try:
            changed = renew(recipe)
        except EngineError as error:
            failed.append(f"{recipe.name}: {error}")
        else:
            print(f"{recipe.lock.name}: {len(recipe.requirements())} packages, {changed or 'unchanged'}")
    if failed:
        raise EngineError("\n".join(failed))


def renew(recipe: Recipe) -> str:
    """Write the recipe's lock; returns what changed, in words, "" for nothing."""
    if not recipe.wanted.is_file():
        raise UsageError(f"{recipe.wanted} is missing: it says what {recipe.name} is resolved from.")
    before = recipe.requirements()
    left_out = {canonicalize_name(name) for name in recipe.uninstall}
    resolved = [line for line in for_linux(_resolve(recipe)) if _name(line) not in left_out]
    after = sorted({*resolved, *recipe.alone}, key=str.lower)
    comment = [line for line in recipe.wanted.read_text().splitlines() if line.startswith("#")][:1]
    head = [*comment, f"# Resolved from {recipe.wanted.name}; renew with: make lock-engines"]
    try:
        recipe.lock.write_text("\n".join([*head, *after]) + "\n")
    except OSError as error:
        raise UsageError(
            f"{recipe.lock} cannot be written ({error.strerror}): locks are renewed in a checkout."
        ) from error
    return changes(before, after)


def changes(before: Sequence[str], after: Sequence[str]) -> str:
    """What a lock lost and gained, in words; "" where only the writing of names differs."""
    if not before:
        return "new"
    old, new = ({_written(line) for line in lines} for lines in (before, after))
    gone, come = sorted(old - new), sorted(new - old)
    return "; ".join(f"{word} {', '.join(lines)}" for word, lines in (("out", gone), ("in", come)) if lines)


def for_linux(lines: Sequence[str]) -> Iterator[str]:
    """The lines that hold on Linux for some Python and processor; a condition that always holds there is dropped."""
    for line in lines:
        requirement = Requirement(line)
        if requirement.marker is None:
            yield line
            continue
        holds = [_holds(requirement.marker, *where) for where in product(_PYTHONS, _MACHINES)]
        if all(holds):
            yield line.split(";")[0].strip()
        elif any(holds):
            yield line


def _holds(marker: Marker, python: str, machine: str) -> bool:
    return marker.evaluate(
        {
            "python_version": python,
            "python_full_version": f"{python}.9",
            "platform_machine": machine,
            "sys_platform": "linux",
            "platform_system": "Linux",
            "os_name": "posix",
            "implementation_name": "cpython",
            "platform_python_implementation": "CPython",
        }
    )


def _resolve(recipe: Recipe) -> list[str]:
    command = [
        _uv(),
        "pip",
        "compile",
        "--universal",
        "--python-version",
        _OLDEST,
        "--no-annotate",
        "--no-header",
    ]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "lock.txt"
        command += ["--quiet", "--output-file", str(out), str(recipe.wanted)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or ["uv said nothing"])[0]
            raise EngineError(f"{reason.removeprefix('error: ')} (uv pip compile {recipe.wanted} says more)")
        return [
            line for line in out.read_text().splitlines() if line and not line.startswith(("#", " ", "-"))
        ]


def _uv() -> str:
    beside = Path(sys.executable).with_name("uv")
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which("uv")
    if found is None:
        raise UsageError("Renewing a lock needs uv. Type: python -m pip install uv")
    return found


def _name(line: str) -> str:
    return canonicalize_name(Requirement(line).name)


def _written(line: str) -> str:
    return line.replace(Requirement(line).name, _name(line), 1)
