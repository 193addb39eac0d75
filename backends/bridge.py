"""How another environment's interpreter finds this project's packages, and nothing else of the harness's environment.

Putting the folder that holds `backends` on PYTHONPATH would, where the harness is installed, also bring all
its other packages, in versions the engine does not want. So a folder with two links is put there instead.
"""

import hashlib
import os
from pathlib import Path

import backends
import harness
from harness.core.cache import cached_folder


def bridged_environment() -> dict[str, str]:
    """Environment variables for a process that imports `backends.serving`."""
    places = {name: Path(next(iter(package.__path__))).resolve() for name, package in _PACKAGES.items()}
    key = hashlib.sha256("|".join(map(str, places.values())).encode()).hexdigest()[:16]

    def link(folder: Path) -> None:
        for name, place in places.items():
            (folder / name).symlink_to(place, target_is_directory=True)

    folder = cached_folder(f"bridges/{key}", link)
    inherited = os.environ.get("PYTHONPATH")
    # Output without delay: the last words of an engine that dies must be in its log.
    return {
        "PYTHONPATH": os.pathsep.join([str(folder), *([inherited] if inherited else [])]),
        "PYTHONUNBUFFERED": "1",
    }


_PACKAGES = {"backends": backends, "harness": harness}
