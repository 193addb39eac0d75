"""Names of runs in a report: engine and workload, and whatever else tells them apart."""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from harness.compare import conf_files
from harness.records.paths import pick
from harness.records.reader import Run
from harness.records.setting_keys import MEASURES_NOTHING, PRICE, SEEDS
from harness.report.values import flatten, listed

# What is asked about a setting, and no part of it.
_ASKED_ABOUT = ("quality", "slo.")
_MACHINE: dict[str, Callable[[Any], str]] = {
    "cpu": lambda cpu: _short(cpu or "an unknown CPU"),
    "cores": lambda cores: f"{cores} cores",
    "gpus": lambda gpus: _short(listed(list(map(str, gpus or []))) or "no GPU"),
}
# How much of a workload is asked for, and where it is kept: not what it asks.
SIZE_OF_WORKLOAD = ("workload.requests", "workload.save")
_LONGEST_VALUE = 40
_MOST_OPTIONS = 3  # of a label that names them all


def labels(runs: Sequence[Run]) -> dict[str, str]:
    """A label for each run id, all different: "openvino · chat", then options that differ, then a count.

    Where engine and workload are the same everywhere, the options alone are the label.
    """
    result = _named(runs, MEASURES_NOTHING)
    names = list(result.values())
    numbers: Counter[str] = Counter()
    for run_id, name in result.items():
        numbers[name] += 1
        if names.count(name) > 1:
            result[run_id] = f"{name} · #{numbers[name]}"
    return result


def group_labels(runs: Sequence[Run]) -> dict[str, str]:
    """Like `labels`, but repeats and seeds of the same options share one: what is compared, not how often."""
    return _named(runs, (*MEASURES_NOTHING, *SEEDS))


def setting_labels(runs: Sequence[Run]) -> dict[str, str]:
    """Like `group_labels` of what was served alone: without the workload, and whatever quality or limits were asked
    about, since a setting that is measured again with them is the same. So is one whose price was given later,
    where all ran on one machine.
    """
    return _served(runs, _ASKED_ABOUT)


def served_labels(runs: Sequence[Run]) -> dict[str, str]:
    """Like `setting_labels`, whatever the load: what a line over several loads is called."""
    return _served(runs, (*_ASKED_ABOUT, "load.", *SIZE_OF_WORKLOAD))


def _served(runs: Sequence[Run], aside: tuple[str, ...]) -> dict[str, str]:
    machines = _machines(runs)  # of several the price is what tells them apart
    aside = aside if any(machines) else (*aside, *PRICE)
    named = _named(runs, (*MEASURES_NOTHING, *SEEDS), aside)
    return {
        run.id: " · ".join(filter(None, (_without_workload(run, label), machine)))
        for run, label, machine in zip(runs, named.values(), machines, strict=True)
    }


def _without_workload(run: Run, label: str) -> str:
    return label.replace(f" · {pick(run.config, 'workload.name')}", "", 1)


def _machines(runs: Sequence[Run]) -> list[str]:
    """In what each machine is not that of all; "" where all are the same, and of a failed run that told nothing."""
    told = [pick(run.fingerprint, "machine") or {} for run in runs]
    counted = [one for run, one in zip(runs, told, strict=True) if one or run.status != "failed"]
    different = [part for part in _MACHINE if len({repr(one.get(part)) for one in counted}) > 1]
    if not different:
        return [""] * len(runs)
    return [
        ", ".join(_MACHINE[part](one.get(part)) for part in different)
        if one
        else ("" if run.status == "failed" else "an unknown machine")
        for run, one in zip(runs, told, strict=True)
    ]


def _named(
    runs: Sequence[Run], not_telling: Sequence[str], groups_aside: tuple[str, ...] = ()
) -> dict[str, str]:
    grouped: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        grouped[_base(run)].append(run)
    result = {}
    for base, members in grouped.items():
        different = differing_options(members)
        telling = [key for key in different if key not in not_telling and not key.startswith(groups_aside)]
        alone = bool(telling) and len(grouped) == 1
        prefix = [*([] if alone else [base]), *_caveats(members)]
        for run, keys in zip(members, _briefly(members, telling), strict=True):
            result[run.id] = " · ".join([*prefix, *option_words(run, keys)])
    return {run.id: result[run.id] for run in runs}


def _briefly(runs: Sequence[Run], keys: list[str]) -> list[list[str]]:
    """For each run the keys that its label names: all, or where they are many, those that it does not leave at the
    engine's usual value. A run that leaves all of them names the one that most others set.
    """
    if len(keys) <= _MOST_OPTIONS:
        return [keys] * len(runs)
    named = [[key for key in keys if not _is_usual(run, key)] for run in runs]
    set_by = Counter(key for chosen in named for key in chosen)
    by_use = sorted(keys, key=lambda key: -set_by[key])
    return [
        chosen or [key for key in by_use if pick(run.config, key) is not None][:1]
        for run, chosen in zip(runs, named, strict=True)
    ]


def _is_usual(run: Run, key: str) -> bool:
    room, _, path = key.partition(".")
    usual = conf_files.read(f"backend/{pick(run.config, 'backend.name')}.yaml") if room == "backend" else {}
    return bool(pick(usual, path) == pick(run.config, key))


def differing_options(runs: Sequence[Run]) -> list[str]:
    """Dotted keys of the configuration whose values are not the same in all runs, sorted."""
    flat = [flatten(run.config) for run in runs]
    keys = {key for config in flat for key in config}
    different = [key for key in keys if len({repr(config.get(key)) for config in flat}) > 1]
    return sorted(key for key in different if key not in MEASURES_NOTHING)


def _base(run: Run) -> str:
    backend, workload = pick(run.config, "backend.name"), pick(run.config, "workload.name")
    return " · ".join(str(name) for name in (backend, workload) if name) or run.id


def _caveats(runs: Sequence[Run]) -> list[str]:
    """What must stand wherever a figure of this engine is shown ("reference kernels, not representative")."""
    return list(dict.fromkeys(str(words) for run in runs for words in pick(run.fingerprint, "caveats") or []))


def option_words(run: Run, keys: list[str]) -> list[str]:
    """`name=value` of each key that this run sets; the whole key where its last part alone would be ambiguous."""
    values: dict[str, dict[str, Any]] = defaultdict(dict)
    for key in keys:
        if (value := pick(run.config, key)) is not None:
            values[key.rsplit(".", 1)[-1]][key] = value
    options = []
    for last_part, by_key in values.items():
        if len(set(map(repr, by_key.values()))) == 1:  # one key, or others that follow it
            options.append(f"{last_part}={_short(next(iter(by_key.values())))}")
        else:
            options += [f"{key}={_short(value)}" for key, value in by_key.items()]
    return options or (["defaults"] if keys else [])


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 1] + "…"
