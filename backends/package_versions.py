"""Which versions of an engine's packages an interpreter has, asked once per process and without importing them."""

import importlib.metadata
import subprocess
from functools import cache
from pathlib import Path

import orjson

from harness.core.errors import UsageError

_ASK_VERSIONS = """
import importlib.metadata as m, json, sys
def version(name):
    try: return m.version(name)
    except m.PackageNotFoundError: return None
print(json.dumps({name: version(name) for name in sys.argv[1:]}))
"""


def versions_here(packages: tuple[str, ...]) -> dict[str, str]:
    """Those of the harness's own interpreter; missing ones are left out."""
    found = {}
    for package in packages:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def all_here(packages: tuple[str, ...]) -> bool:
    """Whether the harness's own interpreter has every one of them."""
    return len(versions_here(packages)) == len(packages)


@cache
def versions_of(python: str, packages: tuple[str, ...]) -> dict[str, str]:
    """Those of the interpreter `python`; missing ones are left out. Raises UsageError where it does not run."""
    command = [str(Path(python).expanduser()), "-I", "-c", _ASK_VERSIONS, *packages]
    try:
        done = subprocess.run(command, capture_output=True, check=True, timeout=60)
        answer: dict[str, str | None] = orjson.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, orjson.JSONDecodeError) as error:
        words = (getattr(error, "stderr", None) or b"").decode(errors="replace").strip().splitlines()
        reason = words[-1] if words else getattr(error, "strerror", None) or "it gave no answer"
        raise UsageError(
            f"backend.python={python} is no Python interpreter that runs ({reason}). Name the python of the "
            "engine's environment, such as backend.python=ENVIRONMENT/bin/python."
        ) from error
    return {name: version for name, version in answer.items() if version is not None}
