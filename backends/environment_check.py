"""What is wrong with an environment that was made: asked of its own interpreter, by importing what must import."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import orjson

from backends.environment import Recipe

_TIMEOUT_S = 600.0  # a cold disk and an engine of gigabytes
# Each module is told before it is imported: one that kills the interpreter is then known too.
_PROBE = """
import importlib, importlib.metadata, json, os, sys
tell = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # what engines print while they are imported is no answer
modules, packages = json.loads(sys.argv[1])
for name in modules:
    print(json.dumps(["importing", name, ""]), file=tell, flush=True)
    try: importlib.import_module(name)
    except BaseException as error:
        print(json.dumps(["broken", name, f"{type(error).__name__}: {error}"]), file=tell, flush=True)
for name in packages:
    try: print(json.dumps(["version", name, importlib.metadata.version(name)]), file=tell, flush=True)
    except importlib.metadata.PackageNotFoundError:
        print(json.dumps(["absent", name, ""]), file=tell, flush=True)
print(json.dumps(["end", "", ""]), file=tell, flush=True)
tell.close()
os._exit(0)  # threads of an engine need not be waited for
"""


@dataclass(frozen=True, slots=True)
class Examination:
    """faults: what is wrong, in words; none is sound. versions: of the recipe's packages, by name."""

    faults: tuple[str, ...]
    versions: dict[str, str]


def examine(python: Path, recipe: Recipe) -> Examination:
    """Import every module of the recipe in the environment of `python`, and ask for the engine's versions."""
    asked = orjson.dumps([recipe.imports, recipe.packages]).decode()
    # -I: neither the caller's folder nor its PYTHONPATH may stand in for what the environment lacks.
    command = [str(python), "-I", "-c", _PROBE, asked]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            check=False,
            timeout=_TIMEOUT_S,
            stdin=subprocess.DEVNULL,
            env=environment,
        )
    except subprocess.TimeoutExpired as late:
        told = _told(late.stdout or b"")
        return Examination((f"importing {_last(told)} did not end within {_TIMEOUT_S:.0f} s",), {})
    except OSError as error:
        return Examination((f"its interpreter {python} does not run ({error.strerror})",), {})
    told = _told(done.stdout)
    faults = [f"{name} does not import ({_first_line(why)})" for kind, name, why in told if kind == "broken"]
    faults += [f"the package {name} is missing" for kind, name, _ in told if kind == "absent"]
    if not told or told[-1][0] != "end":
        faults.append(f"importing {_last(told)} ended its interpreter (exit status {done.returncode})")
    return Examination(tuple(faults), {name: version for kind, name, version in told if kind == "version"})


def _told(output: bytes) -> list[list[str]]:
    return [orjson.loads(line) for line in output.splitlines() if line.endswith(b"]")]


def _last(told: list[list[str]]) -> str:
    return next((name for kind, name, _ in reversed(told) if kind == "importing"), "anything")


def _first_line(words: str) -> str:
    return (words.strip().splitlines() or [""])[0]
