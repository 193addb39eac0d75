"""Whether what is set side by side was given the same cores, limits, memory, precisions and load."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.records.paths import pick
from harness.records.reader import Run

# What a fair comparison gives to every side alike, by its key in a run's configuration or fingerprint.
_HELD_EQUAL = (
    ("engine's cores", "fingerprint", "cores.engine"),
    ("client's cores", "fingerprint", "cores.client"),
    ("engine's threads", "config", "backend.threads"),
    ("context limit", "config", "backend.context_length"),
    ("requests computed at once", "config", "backend.max_running"),
    ("memory for the KV cache", "config", "backend.kv_bytes"),
    ("prefix cache", "config", "backend.prefix_cache"),
    ("tokens a step", "config", "backend.prefill_chunk"),
    ("arithmetic", "config", "backend.dtype"),
    ("KV precision", "config", "backend.kv_dtype"),
    ("weights", "config", "backend.weight_dtype"),
    ("load", "config", "load.name"),
    ("concurrency", "config", "load.concurrency"),
)


@dataclass(frozen=True, slots=True)
class Unequal:
    """Something that a fair comparison holds equal and these runs do not. values: by group, in words."""

    name: str
    values: Mapping[str, str]


def unequal(groups: Mapping[str, Sequence[Run]]) -> tuple[Unequal, ...]:
    """What the groups were not given alike, by their first measured run, so far as it was given from here."""
    theirs = attached(groups)
    found = []
    for name, part, path in _HELD_EQUAL:
        of_the_engine = path.startswith("backend.") or path == "cores.engine"
        values = {}
        for label, runs in groups.items():
            measured = [run for run in runs if run.status == "complete"]
            if measured and not (of_the_engine and label in theirs):
                values[label] = _words(pick(getattr(measured[0], part), path))
        if len(set(values.values())) > 1:
            found.append(Unequal(name, values))
    return tuple(found)


def attached(groups: Mapping[str, Sequence[Run]]) -> tuple[str, ...]:
    """Groups whose server ran already: what it was given only its owner knows, whatever the configuration says."""
    return tuple(
        label
        for label, runs in groups.items()
        if any(pick(run.config, "backend.base_url") for run in runs if run.status == "complete")
    )


def _words(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return "not set" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
