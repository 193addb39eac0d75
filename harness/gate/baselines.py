"""What was accepted: one small file for each experiment, engine and class of hardware."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import orjson

from harness.core.errors import RecordError
from harness.records.paths import pick
from harness.records.reader import Run

SCHEMA = 1


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


def key_of(arguments: Sequence[str], runs: Sequence[Run]) -> Key:
    """From the command and the candidate's runs."""
    experiment = next((a.partition("=")[2] for a in arguments if a.startswith("experiment=")), "")
    others = [argument for argument in arguments if not argument.startswith(("experiment=", "-"))]
    engines = sorted({str(pick(run.config, "backend.name") or "unknown") for run in runs})
    name = "-".join(filter(None, (slug(experiment), *(slug(argument) for argument in others))))
    return Key(name or "default", "+".join(map(slug, engines)), hardware_class(runs[0].fingerprint))


def hardware_class(fingerprint: Mapping[str, Any]) -> str:
    """GPUs by name and count, else the CPU by name and cores."""
    machine = fingerprint.get("machine") or {}
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
