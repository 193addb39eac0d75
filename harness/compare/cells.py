"""Which runs of two sides belong together: cells, in each of which both sides were asked the same requests."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from harness.core.errors import RecordError, UsageError
from harness.records.paths import pick
from harness.records.reader import Run, find_runs, list_runs, runs_of_sweep
from harness.records.schema import IDENTITY
from harness.records.setting_keys import MEASURES_NOTHING, PRICE, SEEDS
from harness.report.values import flatten

# Never part of a setting: where results lie, what only repeats a run, what follows the seed or what only figures or
# checks are made with afterwards.
_NO_SETTING = (*MEASURES_NOTHING, *SEEDS, *PRICE)


@dataclass(frozen=True)
class Cell:
    """Runs of both sides that were asked the same. setting: words for what both were, "" where they are one pair."""

    workload: str
    setting: str
    baseline: tuple[Run, ...]
    candidate: tuple[Run, ...]


def runs_named(patterns: Sequence[str], results_dir: Path) -> list[Run]:
    """Runs by id, folder, shell pattern over ids, or sweep. Raises RecordError where one matches nothing."""
    found: dict[str, Run] = {}
    names = list_runs(results_dir)
    for pattern in patterns:
        sweep: list[Run] = []
        if not any(fnmatch(name, pattern) for name in names) and not Path(pattern).exists():
            sweep = runs_of_sweep(pattern, results_dir)
        for run in sweep or find_runs([pattern], results_dir):
            found.setdefault(run.id, run)
    return list(found.values())


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A run that is in no cell, and why."""

    side: str
    run: str
    why: str


def left_out(baseline: Sequence[Run], candidate: Sequence[Run], found: Sequence[Cell]) -> tuple[LeftOut, ...]:
    """Runs of either side that are compared with nothing: a workload that fell over must not just be missing."""
    taken = {run.id for cell in found for run in (*cell.baseline, *cell.candidate)}
    return tuple(
        LeftOut(
            side,
            run.id,
            "the other side has no complete run that was asked the same with these options"
            if run.status == "complete"
            else f"{run.status}, {run.reason or 'no reason was recorded'}",
        )
        for side, runs in (("baseline", baseline), ("candidate", candidate))
        for run in runs
        if run.id not in taken
    )


def cells(baseline: Sequence[Run], candidate: Sequence[Run]) -> list[Cell]:
    """Both sides cut by what was asked, then paired by setting.

    Where a side has one setting for what was asked, it is compared with the other's one whatever they are; where both
    have several, those of equal options are compared. Runs that are not complete count for nothing here.

    Raises RecordError where a side has no complete run, and UsageError where a run is on both sides, nothing was
    asked of both, or several settings cannot be paired.
    """
    sides = (_complete("baseline", baseline), _complete("candidate", candidate))
    if both := {run.id for run in sides[0]} & {run.id for run in sides[1]}:
        raise UsageError(f"{', '.join(sorted(both))} is on both sides: a run is not compared with itself.")
    asked = [_by_workload(side) for side in sides]
    shared = [key for key in asked[0] if key in asked[1]]
    found = []
    for workload in shared:
        theirs, ours = asked[0][workload], asked[1][workload]
        plans = {_asked(run) for run in theirs} & {_asked(run) for run in ours}
        if plans:
            same = [[run for run in side if _asked(run) in plans] for side in (theirs, ours)]
            found += _paired(workload, *same)
    if not found:
        raise UsageError(_nothing_shared(asked[0], asked[1]))
    return found


def _asked(run: Run) -> tuple[object, ...]:
    """What was measured: requests and model."""
    return tuple(run.fingerprint.get(field) for field in IDENTITY)


def _complete(side: str, runs: Sequence[Run]) -> list[Run]:
    complete = [run for run in runs if run.status == "complete"]
    if not complete:
        why = "; ".join(f"{run.id}: {run.status}, {run.reason or 'no reason was recorded'}" for run in runs)
        raise RecordError(f"The {side} has no complete run ({why}). Name others, or run it again.")
    return complete


def _by_workload(runs: Iterable[Run]) -> dict[str, list[Run]]:
    found: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        found[str(pick(run.config, "workload.name") or run.fingerprint.get("workload"))].append(run)
    return found


def _paired(workload: str, baseline: Sequence[Run], candidate: Sequence[Run]) -> list[Cell]:
    theirs, ours = _by_setting(baseline), _by_setting(candidate)
    if len(theirs) == len(ours) == 1:
        return [Cell(workload, "", tuple(baseline), tuple(candidate))]
    telling = _telling([*theirs, *ours])
    equal = [setting for setting in theirs if setting in ours]
    if not equal:
        raise UsageError(
            f"The baseline has {_count(len(theirs))} of {workload} and the candidate {_count(len(ours))}, "
            f"none of them equal: what belongs to what is not known. Name the runs of one setting a side. "
            f"They differ in: {', '.join(telling)}."
        )
    return [
        Cell(
            workload,
            " ".join(f"{key}={_word(dict(setting).get(key))}" for key in telling),
            tuple(theirs[setting]),
            tuple(ours[setting]),
        )
        for setting in equal
    ]


Setting = tuple[tuple[str, str], ...]


def _by_setting(runs: Iterable[Run]) -> dict[Setting, list[Run]]:
    found: dict[Setting, list[Run]] = defaultdict(list)
    for run in runs:
        options = flatten(run.config)
        key = tuple(sorted((name, repr(value)) for name, value in options.items() if name not in _NO_SETTING))
        found[key].append(run)
    return found


def _telling(settings: Sequence[Setting]) -> list[str]:
    """Keys whose values are not the same in all settings, sorted."""
    values: dict[str, set[str | None]] = defaultdict(set)
    keys = {key for setting in settings for key, _ in setting}
    for setting in settings:
        given = dict(setting)
        for key in keys:
            values[key].add(given.get(key))
    return sorted(key for key, found in values.items() if len(found) > 1)


def _nothing_shared(baseline: Mapping[str, Sequence[Run]], candidate: Mapping[str, Sequence[Run]]) -> str:
    shared = [name for name in baseline if name in candidate]
    if not shared:
        return (
            f"The baseline ran {', '.join(baseline)}, the candidate {', '.join(candidate)}: different work is not "
            "compared. Name runs of one workload."
        )
    one = shared[0]
    options = (flatten(baseline[one][0].config), flatten(candidate[one][0].config))
    differing = [
        f"{key} {_word(repr(options[0].get(key)))} and {_word(repr(options[1].get(key)))}"
        for key in sorted({*options[0], *options[1]})
        if key.startswith(("workload.", "load.", "model.", "seed"))
        and options[0].get(key) != options[1].get(key)
    ]
    what = f"They differ in: {'; '.join(differing)}." if differing else "Their requests are not the same."
    if baseline[one][0].fingerprint.get("model_sha256") != candidate[one][0].fingerprint.get("model_sha256"):
        return f"Baseline and candidate of {one} ran different models, so they are not compared. {what}"
    return f"Baseline and candidate of {one} were asked different requests, so they are not compared. {what}"


def _word(value: str | None) -> str:
    return "none" if value in (None, "None") else str(value).strip("'")


def _count(settings: int) -> str:
    return f"{settings} setting" if settings == 1 else f"{settings} settings"
