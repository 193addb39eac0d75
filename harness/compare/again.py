"""The command that makes a recorded run again: its configuration, said as what differs from the defaults in conf/."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from harness.compare.conf_files import exists, read
from harness.records.paths import pick
from harness.records.reader import Run

_COMMAND = "python -m harness"
# Groups of which one choice is taken, in the order they are written.
_GROUPS = ("backend", "model", "workload", "load", "slo", "hardware")
_QUALITY = "quality"
# Set by the command that repeats a run, or by the machine.
_NOT_AGAIN = ("backend.port", "load.workers")
# Keys that belong together and are swept as one mapping: a method to evict has no meaning without its budget.
_KV = "backend.kv"
_PLAIN = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:+%")


def overrides_of(run: Run, without: Sequence[str] = ()) -> dict[str, str]:
    """KEY to VALUE, as Hydra reads them, of everything that is not the default. without: groups to leave out."""
    primary = read("config.yaml")
    usual = {group: choice for entry in primary["defaults"] for group, choice in _entries(entry)}
    found: dict[str, str] = {}
    for group in _GROUPS:
        options = run.config.get(group)
        if isinstance(options, Mapping) and group not in without:
            choice = _choice(group, options)
            if choice != usual.get(group):
                found[group] = written(choice)
            found.update(_different(group, options, read(f"{group}/{choice}.yaml"), run.config))
    if _QUALITY not in without:
        found.update(_quality(run.config, primary))
    if seed := run.config.get("seed"):
        found["seed"] = written(seed)
    return dict(sorted(found.items(), key=lambda item: "." in item[0]))  # choices first, as one writes them


def command(overrides: Mapping[str, str], *more: str) -> str:
    """The command line, quoted for a shell."""
    words = [f"{key}={value}" for key, value in overrides.items()]
    return " ".join([_COMMAND, *(shlex.quote(word) for word in (*words, *more))])


def both(one: Run, other: Run, *more: str) -> list[str]:
    """One sweep that takes turns where a single key tells the runs apart, or only how the KV cache is held, which
    spares them the machine's moods; else a command for each.
    """
    ours, theirs = overrides_of(one), overrides_of(other)
    apart = [key for key in {**ours, **theirs} if ours.get(key) != theirs.get(key)]
    if len(apart) == 1:
        key = apart[0]
        values = [side.get(key) or _usual(run, key) for side, run in ((ours, one), (theirs, other))]
        known = [value for value in values if value is not None and not set(value) & set("[{,")]
        if len(known) == len(values):
            return [_sweep({**theirs, **ours, key: ",".join(known)}, *more)]
    if apart and all(key.startswith(f"{_KV}.") for key in apart):
        shared = {key: value for key, value in ours.items() if not key.startswith(f"{_KV}.")}
        return [_sweep({**shared, _KV: f"{_mapping(ours)},{_mapping(theirs)}"}, *more)]
    return [command(side, *more) for side in (ours, theirs)]


def _sweep(overrides: Mapping[str, str], *more: str) -> str:
    return command(overrides, *more).replace(_COMMAND, f"{_COMMAND} -m", 1)


def _mapping(overrides: Mapping[str, str]) -> str:
    """What is said of the KV cache as one value of Hydra's: {evict:h2o,budget:{tokens:256}}."""
    flat = {
        key.removeprefix(f"{_KV}."): value for key, value in overrides.items() if key.startswith(f"{_KV}.")
    }
    inner: dict[str, list[str]] = {}
    for key, value in flat.items():
        name, _, part = key.partition(".")
        inner.setdefault(name, []).append(f"{part}:{value}" if part else value)
    return f"{{{','.join(f'{name}:{_value(name, parts, flat)}' for name, parts in inner.items())}}}"


def _value(name: str, parts: Sequence[str], flat: Mapping[str, str]) -> str:
    return parts[0] if name in flat else f"{{{','.join(parts)}}}"


def written(value: Any) -> str:
    """A value in the grammar of Hydra's overrides."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{','.join(map(written, value))}]"
    text = str(value)
    if not isinstance(value, str) or (text and set(text) <= _PLAIN):
        return text
    escaped = text.replace("'", "\\'")
    return f"'{escaped}'"


def _quality(config: Mapping[str, Any], primary: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    quality = config.get(_QUALITY) or {}
    tasks = {task: options for task, options in quality.items() if isinstance(options, Mapping)}
    if not tasks:
        return
    yield _QUALITY, written(list(tasks)) if len(tasks) > 1 else next(iter(tasks))
    for task, options in tasks.items():
        yield from _different(f"quality.{task}", options, read(f"quality/{task}.yaml"), config)
    plain = {key: value for key, value in quality.items() if not isinstance(value, Mapping)}
    usual = {key: value for key, value in primary[_QUALITY].items() if key in plain}
    yield from _different(_QUALITY, {key: plain[key] for key in usual}, usual, config)


def _different(
    prefix: str, options: Mapping[str, Any], defaults: Mapping[str, Any], config: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    for name, value in options.items():
        key = f"{prefix}.{name}"
        if name == "name" or key in _NOT_AGAIN or (prefix != "slo" and name not in defaults):
            continue
        usual = defaults.get(name)
        if isinstance(value, Mapping):
            yield from _different(key, value, usual if isinstance(usual, Mapping) else {}, config)
        elif value != _resolved(usual, value, options, config):
            yield key, written(value)


def _resolved(usual: Any, value: Any, siblings: Mapping[str, Any], config: Mapping[str, Any]) -> Any:
    """A default that follows another key; one that means something only beside another is not written where unset."""
    if not isinstance(usual, str) or not usual.startswith("${"):
        return usual
    path = usual[2:-1]
    if path.startswith("."):
        return siblings.get(path[1:])
    return pick(config, path) if ":" not in path else None if value is None else usual


def _choice(group: str, options: Mapping[str, Any]) -> str:
    name = str(options.get("name"))
    if group == "model" and not exists(f"{group}/{name}.yaml"):
        return "path" if options.get("path") else "hub"
    return name


def _usual(run: Run, key: str) -> str | None:
    """What a run has where it has the default. A group's default choice is its name."""
    value = pick(run.config, f"{key}.name" if key in _GROUPS else key)
    return None if value is None or isinstance(value, Mapping) else written(value)


def _entries(entry: Any) -> Iterator[tuple[str, str]]:
    if isinstance(entry, Mapping):
        yield from ((str(key), str(value)) for key, value in entry.items())
