"""The story of a gate: measure, judge, measure again what looks worse, keep what was found."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from harness.compare.measures import Measure, chosen
from harness.core.errors import HarnessError
from harness.gate.accepted import accepted_side, check_same_plans, environment_of
from harness.gate.against_history import beyond_floor, judge_stored
from harness.gate.baselines import Baseline, Key, key_of, read_baseline, write_baseline
from harness.gate.cells import asked_of, by_cell, paired_cells
from harness.gate.findings import Finding, Outcome
from harness.gate.history import append, read_history, unchanged
from harness.gate.judging import judge_paired, limits_of, suspects
from harness.gate.night import BASELINE, CANDIDATE, Night, measure, new_night, turns
from harness.gate.options import GateOptions
from harness.gate.together import least_p
from harness.records.drift import drift_words
from harness.records.reader import Run

Say = Callable[[str], None]
NIGHTLY = "experiment=nightly"


def run_gate(options: GateOptions, arguments: Sequence[str], say: Say) -> tuple[Outcome, Key, Night]:
    """Measure and judge a night, append it to the history, and accept it where that was asked for.

    Raises UsageError for a baseline that there is not, and for arguments that `python -m harness` refuses;
    RecordError for a baseline or history that is damaged, before anything is measured; HarnessError where nothing
    was recorded.
    """
    arguments = list(arguments)
    if not any(argument.startswith("experiment=") for argument in arguments):
        arguments.insert(0, NIGHTLY)
    key = key_of(arguments, [*(options.baseline or []), *options.candidate])
    baseline = read_baseline(Path(options.baselines), key)
    read_history(Path(options.folder))
    if baseline is None and options.first == "accept" and not options.baseline:
        say(
            f"Nothing was accepted yet for {key.experiment} on {key.engine} here: tonight becomes the baseline."
        )
        options = replace(options, mode="stored", accept=True)
    measures = [one for one in chosen(options.gating, {"": options.least_effect}) if one.gating]
    of_side = {CANDIDATE: list(options.candidate)}
    if options.mode == "paired":
        given = options.baseline
        of_side[BASELINE] = accepted_side(baseline, key) if given is None else list(given)
    night = new_night(Path(options.folder), arguments)
    if options.mode == "paired":
        findings = _paired(night, of_side, measures, options, say)
    else:
        findings = _stored(night, of_side, measures, options, key, baseline, say)
    cautions = [*_cautions(night), *_beyond_reach(findings, measures, options)]
    outcome = Outcome(night.id, options.mode, tuple(findings), tuple(cautions))
    _keep(night, outcome, key, baseline, measures, options)
    return outcome, key, night


def _paired(
    night: Night, of_side: dict[str, list[str]], measures: Sequence[Measure], options: GateOptions, say: Say
) -> list[Finding]:
    measure(night, 1, list(turns(options.repeats)), of_side, say)
    _check_recorded(night)
    looks = [paired_cells(night.runs(BASELINE, 1), night.runs(CANDIDATE, 1))]
    if found := suspects(looks[0], measures, options):
        say(f"{_named(found)} looks worse; measured again")
        measure(night, 2, list(turns(options.repeats)), of_side, say)
        looks.append(paired_cells(night.runs(BASELINE, 2), night.runs(CANDIDATE, 2)))
    return judge_paired(looks, measures, options)


def _stored(
    night: Night,
    of_side: dict[str, list[str]],
    measures: Sequence[Measure],
    options: GateOptions,
    key: Key,
    baseline: Baseline | None,
    say: Say,
) -> list[Finding]:
    measure(night, 1, [CANDIDATE] * options.repeats, of_side, say)
    _check_recorded(night)
    looks = [by_cell(night.runs(CANDIDATE, 1))]
    if baseline is not None and not options.accept:
        check_same_plans(baseline, looks[0])
    table = read_history(Path(options.folder))

    def history(cell: str, path: str) -> list[float]:
        return unchanged(table, key, cell, path, baseline.night) if baseline else []

    if found := beyond_floor(looks[0], history, measures, options):
        say(f"{_named(found)} looks worse; measured again")
        measure(night, 2, [CANDIDATE] * options.repeats, of_side, say)
        looks.append(by_cell(night.runs(CANDIDATE, 2)))
    expected = list(baseline.plans) if baseline and not options.accept else []
    return judge_stored(looks, expected, history, measures, options)


def _check_recorded(night: Night) -> None:
    if not night.runs(CANDIDATE, 1):
        raise HarnessError(f"Nothing was recorded tonight. {night.folder / 'harness.log'} says why.")


def _keep(
    night: Night,
    outcome: Outcome,
    key: Key,
    baseline: Baseline | None,
    measures: Sequence[Measure],
    options: GateOptions,
) -> None:
    runs = night.runs(CANDIDATE, 1)
    known = next((run.fingerprint for run in runs if run.status == "complete"), {})
    commit, versions = str(known.get("harness_commit") or ""), dict(known.get("engine") or {})
    accepted = night.id if options.accept else baseline.night if baseline else ""
    append(Path(options.folder), key, outcome, accepted, commit, versions)
    if not options.accept:
        return
    sides = by_cell(runs)
    for name, side in sides.items():
        if 2 * side.lost(options.repeats) > options.repeats:
            raise HarnessError(f"The night is not accepted: of {name} most runs failed ({side.why_lost()}).")
    write_baseline(
        Path(options.baselines),
        key,
        Baseline(
            night=night.id,
            accepted_at=datetime.now(UTC).isoformat(timespec="seconds"),
            environment=environment_of(runs),
            harness_commit=commit,
            engine_versions=versions,
            plans={name: asked_of(side) for name, side in sides.items()},
            samples={
                name: {one.path: list(side.values(one)) for one in measures} for name, side in sides.items()
            },
        ),
    )


def _cautions(night: Night) -> list[str]:
    found = []
    everything: list[Run] = []
    for side in (BASELINE, CANDIDATE):
        runs = [run for look in (1, 2) for run in night.runs(side, look)]
        everything += runs
        failed = sorted({str(c["check"]) for run in runs for c in run.validity if c["ok"] is False})
        spoilt = sum(any(check["ok"] is False for check in run.validity) for run in runs)
        broken = sum(run.status != "complete" for run in runs)
        if spoilt:
            found.append(
                f"{side}: {spoilt} of {len(runs)} runs failed a validity check ({', '.join(failed)})"
            )
        if broken:
            found.append(f"{side}: {broken} of {len(runs)} runs are not complete")
    if drift := drift_words(everything):
        found.append(drift)
    theirs, ours = (environment_of(night.runs(side, 1)) for side in (BASELINE, CANDIDATE))
    if theirs and theirs == ours:
        found.append(
            f"Both sides ran the engine in {theirs}: it has not changed since it was accepted, and the harness "
            "around it is tonight's on both sides, so that only noise can differ"
        )
    return found


def _beyond_reach(
    findings: Sequence[Finding], measures: Sequence[Measure], options: GateOptions
) -> list[str]:
    """Whether there are so many cells that none of their figures could fail; known only when all are measured."""
    cells = len({finding.cell for finding in findings})
    alpha, least = limits_of(options, measures, cells).alpha, least_p(options.repeats, options.repeats) ** 2
    if options.mode != "paired" or alpha >= least:
        return []
    return [
        f"No figure of {cells} cells could fail this night: each is allowed a p of {alpha:.2g}, and two looks of "
        f"{options.repeats} runs a side have none below {least:.2g}. Raise gate.repeats or gate.false_alarms, or "
        "gate fewer cells"
    ]


def _named(found: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{path} of {cell}" for cell, path in found)
