"""An environment of one small wheel that a test makes itself, so that making one takes seconds and no registry."""

import zipfile
from pathlib import Path

import pytest

from backends.environment import Recipe

TINY = Recipe(
    name="tiny-cpu",
    imports=("tiny_engine", "tiny_stub"),
    packages=("tiny-engine",),
    overlay="tiny",
    megabytes=1,
)


def write_wheel(folder: Path, name: str, version: str, code: str = "") -> Path:
    """A wheel of one module; pip needs no more than these files in it."""
    module, info = name.replace("-", "_"), f"{name.replace('-', '_')}-{version}.dist-info"
    path = folder / f"{module}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(f"{module}.py", code)
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(
            f"{info}/RECORD", f"{module}.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n"
        )
    return path


def lay_out(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Locks, an overlay and a wheel below `folder`; the cache there too; pip is kept away from any registry."""
    locks, wheels = folder / "environments", folder / "wheels"
    (locks / "overlays" / "tiny").mkdir(parents=True)
    wheels.mkdir()
    (locks / "overlays" / "tiny" / "tiny_stub.py").write_text("here = True\n")
    (locks / "tiny-cpu.txt").write_text("# Exact.\ntiny-engine==1.2\n")
    write_wheel(wheels, "tiny-engine", "1.2", "answer = 42\n")
    monkeypatch.setattr("backends.environment.LOCKS", locks)
    monkeypatch.setenv("INFERENCE_HARNESS_CACHE", str(folder / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
