"""Makes an engine's environment from its recipe: once, whole or not at all, by one process at a time.

It is made in its final place, since scripts in it name that place. A note written last tells a whole one from one
that was interrupted; whoever comes next removes the latter and begins again. The file lock is inherited by pip, so
nobody begins while a pip that outlived its parent still writes.
"""

import os
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

import orjson

from backends.base import Say
from backends.environment import Recipe, environments_folder
from backends.environment_check import examine
from backends.gpu import nvidia_gpu_here
from backends.package_versions import versions_of
from backends.pip_process import pip_install
from harness.core.cache import locked
from harness.core.errors import EngineError, HarnessError, UsageError

_SPARE = 1.5  # disk space to have, in sizes of the environment: wheels are unpacked beside their archives


def ensure(recipe: Recipe, say: Say = lambda line: None, python: str | None = None) -> Path:
    """The interpreter of the environment, which is made if it is not there; minutes, told by `say`.

    python: interpreter to make it with; None is the harness's own. Another process that makes the same one is
    waited for. Raises UsageError where it cannot be made on this machine, EngineError where it failed; nothing is
    left behind then.
    """
    if recipe.installed():
        return recipe.python()
    check_possible(recipe, python)
    with locked(
        recipe.folder(), lambda: say(f"waiting for another process that makes {recipe.name}")
    ) as held:
        if not recipe.installed():
            remake(recipe, say, held, python)
    return recipe.python()


def mend(recipe: Recipe, say: Say = lambda line: None, python: str | None = None) -> Path:
    """Like `ensure`, but one that is there is examined first, and made again where it does not work."""
    if not recipe.installed():
        return ensure(recipe, say, python)
    say("importing what is installed")
    if not _sound(recipe):
        check_possible(recipe, python)
        with locked(
            recipe.folder(), lambda: say(f"waiting for another process that makes {recipe.name}")
        ) as held:
            if not _sound(recipe):  # nobody else mended it meanwhile
                remake(recipe, say, held, python)
    return recipe.python()


def _sound(recipe: Recipe) -> bool:
    return recipe.installed() and not examine(recipe.python(), recipe).faults


def being_made(recipe: Recipe) -> bool:
    """Whether a process, here or of somebody else with the same cache, makes it right now."""
    if not environments_folder().is_dir():
        return False
    try:
        with locked(recipe.folder(), _raise_busy):
            return False
    except _Busy:
        return True


class _Busy(Exception):
    """Somebody else holds the lock."""


def _raise_busy() -> None:
    raise _Busy


def remake(recipe: Recipe, say: Say, held: TextIO, python: str | None = None) -> None:
    """Make it from nothing, whatever was there. The caller holds the lock `held` on its folder."""
    folder = recipe.folder()
    discard(recipe)
    try:
        _make(recipe, folder, python or sys.executable, say, held)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def discard(recipe: Recipe) -> None:
    """Remove what is there, the note first: nothing half-removed is ever taken for whole."""
    recipe.complete.unlink(missing_ok=True)
    if recipe.folder().exists():
        shutil.rmtree(recipe.folder())


def check_possible(recipe: Recipe, python: str | None = None) -> None:
    """Raise UsageError for a machine or an interpreter on which it cannot be made, EngineError without a lock."""
    if not recipe.requirements():
        raise EngineError(
            f"{recipe.name} has no lock yet: its exact versions were never resolved, and none are guessed. "
            "Where the registry has them, a checkout of the project can resolve them; the command is named by: "
            "python -m harness.engines action=doctor"
        )
    if recipe.gpu and not nvidia_gpu_here():
        raise UsageError(f"{recipe.name} is of no use without an NVIDIA GPU, and this machine shows none.")
    found, wanted = _python_version(python), recipe.minimum_python
    if found < wanted:
        raise UsageError(
            f"{recipe.name} needs Python {_dotted(wanted)} or newer; {python or sys.executable} is "
            f"{_dotted(found)}. Name another: python=/usr/bin/python{_dotted(wanted)}"
        )
    needed, free = int(recipe.megabytes * _SPARE), _free_megabytes(recipe.folder().parent)
    if free < needed:
        raise UsageError(
            f"{recipe.name} needs about {needed} MB of disk space, and {recipe.folder().parent} has {free} MB. "
            "Make room, or set INFERENCE_HARNESS_CACHE to a folder on a larger disk."
        )


def _make(recipe: Recipe, folder: Path, python: str, say: Say, held: TextIO) -> None:
    say("an empty environment")
    _venv(python, folder)
    (packages,) = (folder / "lib").glob("python*/site-packages")
    log = folder.with_name(f"{recipe.name}.log")
    pip_install(recipe.python(), recipe.requirements(), log, say, held, packages)
    if recipe.overlay_folder is not None:
        # A copy: the environment must not change when the project's own files do.
        shutil.copytree(
            recipe.overlay_folder, folder / "overlay", ignore=shutil.ignore_patterns("__pycache__")
        )
        (packages / "harness_overlay.pth").write_text(f"{folder / 'overlay'}\n")
    say("importing what was installed")
    examination = examine(recipe.python(), recipe)
    if examination.faults:
        raise EngineError(
            f"{recipe.name} was installed but does not work, and was removed again: "
            f"{'; '.join(examination.faults)}. What pip said: {log}"
        )
    note = {
        "recipe": recipe.name,
        "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": _dotted(_python_version(str(recipe.python()))),
        "versions": examination.versions,
    }
    versions_of.cache_clear()  # what was asked before it was made is no answer any more
    unfinished = recipe.complete.with_suffix(".part")
    unfinished.write_bytes(orjson.dumps(note))
    unfinished.replace(recipe.complete)


def _venv(python: str, folder: Path) -> None:
    done = subprocess.run(
        [python, "-I", "-m", "venv", str(folder)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        words = (done.stdout + done.stderr).strip()
        if "ensurepip" in words:
            raise HarnessError("Python's venv is missing. Type: sudo apt-get install -y python3-venv")
        last = (words.splitlines() or ["it said nothing"])[-1]
        raise HarnessError(f"{python} could not make an environment in {folder}: {last}")


def _python_version(python: str | None) -> tuple[int, int]:
    if python is None:
        return sys.version_info[:2]
    ask = "import sys; print(*sys.version_info[:2])"
    try:
        done = subprocess.run(
            [python, "-I", "-c", ask], capture_output=True, text=True, check=True, timeout=60
        )
        major, minor = map(int, done.stdout.split())
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise UsageError(f"python={python} is no Python interpreter that runs.") from error
    return major, minor


def _free_megabytes(folder: Path) -> int:
    while not folder.exists():
        folder = folder.parent
    stat = os.statvfs(folder)
    return stat.f_bavail * stat.f_frsize // 1_000_000


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
