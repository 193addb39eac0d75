"""What was accepted: one small file for each experiment, engine and class of hardware."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

import orjson
from omegaconf import OmegaConf

from harness.core.errors import RecordError
from harness.fingerprint import machine

SCHEMA = 1
_LONGEST_NAME = 80


@dataclass(frozen=True, slots=True)
class Key:
    """What a baseline is for. hardware: the class, such as "nvidia-l4-x1" or a CPU's name with its cores."""

    experiment: str
    engine: str
    hardware: str

    @property
    def file_name(self) -> str:
        """Of the baseline."""
        return f"{self.experiment}--{self.engine}--{self.hardware}.json"


@dataclass(frozen=True)
class Baseline:
    """An accepted night. environment: folder of the engine's environment, "" where it had none of its own.

    plans: SHA-256 of the requests of each cell. samples: by cell and path, the figure of each run.
    """

    night: str
    accepted_at: str
    environment: str
    harness_commit: str
    engine_versions: dict[str, str] = field(default_factory=dict)
    plans: dict[str, list[str]] = field(default_factory=dict)
    samples: dict[str, dict[str, list[float]]] = field(default_factory=dict)


def key_of(arguments: Sequence[str], of_side: Sequence[str] = ()) -> Key:
    """From the command, what only the sides get, and this machine: known before anything is measured."""
    given = {key: value for key, _, value in (argument.partition("=") for argument in arguments)}
    others = sorted(
        argument
        for argument in (*arguments, *of_side)
        if not argument.startswith(("experiment=", "backend=", "-"))
    )
    name = "-".join(filter(None, (slug(given.get("experiment", "")), *map(slug, others))))
    if len(name) > _LONGEST_NAME:
        name = f"{name[:_LONGEST_NAME]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    engine = slug(given.get("backend") or default_engine(given.get("experiment")))
    return Key(name or "default", engine, hardware_class(machine()))


def default_engine(experiment: str | None) -> str:
    """The engine that the configuration names where the command does not."""
    for path in filter(None, (f"experiment/{experiment}.yaml" if experiment else None, "config.yaml")):
        file = files("conf").joinpath(path)
        if not file.is_file():
            continue
        values: Any = OmegaConf.to_container(OmegaConf.create(file.read_text(encoding="utf-8")))
        for entry in values.get("defaults", []):
            if isinstance(entry, dict) and (found := entry.get("override /backend") or entry.get("backend")):
                return str(found)
    return "unknown"


def hardware_class(machine: Mapping[str, Any]) -> str:
    """GPUs by name and count, else the CPU by name and cores."""
    if gpus := machine.get("gpus"):
        return f"{slug(str(gpus[0]))}-x{len(gpus)}"
    return f"{slug(str(machine.get('cpu') or 'cpu'))}-{machine.get('cores') or 0}-cores"


def read_baseline(folder: Path, key: Key) -> Baseline | None:
    """The accepted night, None where there is none. Raises RecordError for a damaged or newer file."""
    path = folder / key.file_name
    if not path.is_file():
        return None
    try:
        record = orjson.loads(path.read_bytes())
        if record.pop("schema") != SCHEMA:
            raise ValueError("another schema")
        return Baseline(**record)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise RecordError(
            f"{path} is no baseline this version reads ({error}). Restore it, or remove it and accept a night again "
            "with gate.accept=true."
        ) from error


def write_baseline(folder: Path, key: Key, baseline: Baseline) -> Path:
    """Write it; returns its path."""
    path = folder / key.file_name
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".part")
    unfinished.write_bytes(
        orjson.dumps({"schema": SCHEMA, **asdict(baseline)}, option=orjson.OPT_INDENT_2) + b"\n"
    )
    unfinished.replace(path)
    return path


def slug(text: str) -> str:
    """Lower case letters, digits and single dashes, fit for a file name on any system."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:60]
