"""The story of a gate: measure, judge, measure again what looks worse, keep what was found."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from harness.compare.measures import Measure, chosen
from harness.core.errors import HarnessError
from harness.gate.accepted import accepted_side, check_same_plans, environment_of, plans
from harness.gate.baselines import Baseline, Key, key_of, read_baseline, write_baseline
from harness.gate.cells import Side, by_cell, paired_cells
from harness.gate.findings import Finding, Outcome
from harness.gate.history import append, read_history, unchanged
from harness.gate.judging import beyond_floor, judge_paired, judge_stored, suspects
from harness.gate.night import BASELINE, CANDIDATE, Night, measure, new_night, turns
from harness.gate.options import GateOptions

Say = Callable[[str], None]
NIGHTLY = "experiment=nightly"


def run_gate(options: GateOptions, arguments: Sequence[str], say: Say) -> tuple[Outcome, Key, Night]:
    """Measure and judge a night, append it to the history, and accept it where that was asked for.

    Raises UsageError for a baseline that there is not, and for arguments that `python -m harness` refuses.
    """
    arguments = list(arguments)
    if not any(argument.startswith(("experiment=", "workload=")) for argument in arguments):
        arguments.insert(0, NIGHTLY)
    measures = [one for one in chosen(options.gating, {"": options.least_effect}) if one.gating]
    of_side = {CANDIDATE: list(options.candidate)}
    if options.mode == "paired":
        of_side[BASELINE] = list(options.baseline or accepted_side(Path(options.baselines), arguments))
    night = new_night(Path(options.folder), arguments)
    if options.mode == "paired":
        findings = _paired(night, of_side, measures, options, say)
    else:
        findings = _stored(night, of_side, measures, options, say)
    return _kept(night, findings, measures, options)


def _paired(
    night: Night, of_side: dict[str, list[str]], measures: Sequence[Measure], options: GateOptions, say: Say
) -> list[Finding]:
    measure(night, 1, list(turns(options.repeats)), of_side, say)
    first = paired_cells(night.runs(BASELINE, 1), night.runs(CANDIDATE, 1))
    second: dict[str, tuple[Side, Side]] = {}
    if found := suspects(first, measures, options):
        say(f"{_named(found)} looks worse; measured again")
        measure(night, 2, list(turns(options.repeats)), of_side, say)
        second = paired_cells(night.runs(BASELINE, 2), night.runs(CANDIDATE, 2))
    return judge_paired(first, second, measures, options)


def _stored(
    night: Night, of_side: dict[str, list[str]], measures: Sequence[Measure], options: GateOptions, say: Say
) -> list[Finding]:
    measure(night, 1, [CANDIDATE] * options.repeats, of_side, say)
    runs = night.runs(CANDIDATE, 1)
    key = key_of(night.arguments, runs)
    baseline = read_baseline(Path(options.baselines), key)
    looks = [by_cell(runs)]
    if baseline is not None:
        check_same_plans(baseline, looks[0])
    table = read_history(Path(options.folder))
    accepted = baseline.night if baseline else ""

    def history(cell: str, path: str) -> list[float]:
        return unchanged(table, key, cell, path, accepted) if baseline else []

    if found := beyond_floor(looks[0], history, measures, options):
        say(f"{_named(found)} looks worse; measured again")
        measure(night, 2, [CANDIDATE] * options.repeats, of_side, say)
        looks.append(by_cell(night.runs(CANDIDATE, 2)))
    return judge_stored(looks, history, measures, options)


def _kept(
    night: Night, findings: Sequence[Finding], measures: Sequence[Measure], options: GateOptions
) -> tuple[Outcome, Key, Night]:
    runs = night.runs(CANDIDATE, 1)
    if not runs:
        raise HarnessError(f"Nothing was recorded tonight. {night.folder / 'harness.log'} says why.")
    key = key_of(night.arguments, runs)
    baseline = read_baseline(Path(options.baselines), key)
    outcome = Outcome(night.id, options.mode, tuple(findings), tuple(_cautions(night)))
    commit = str(runs[-1].fingerprint.get("harness_commit") or "")
    versions = dict(runs[-1].fingerprint.get("engine") or {})
    accepted = night.id if options.accept else baseline.night if baseline else ""
    append(Path(options.folder), key, outcome, accepted, commit, versions)
    if options.accept:
        sides = by_cell(runs)
        write_baseline(
            Path(options.baselines),
            key,
            Baseline(
                night=night.id,
                accepted_at=datetime.now(UTC).isoformat(timespec="seconds"),
                environment=environment_of(runs),
                harness_commit=commit,
                engine_versions=versions,
                plans={name: plans(side) for name, side in sides.items()},
                samples={
                    name: {one.path: list(side.values(one)) for one in measures}
                    for name, side in sides.items()
                },
            ),
        )
    return outcome, key, night


def _cautions(night: Night) -> list[str]:
    found = []
    for side in (BASELINE, CANDIDATE):
        runs = [run for look in (1, 2) for run in night.runs(side, look)]
        failed = sorted({str(c["check"]) for run in runs for c in run.validity if c["ok"] is False})
        spoilt = sum(any(check["ok"] is False for check in run.validity) for run in runs)
        broken = sum(run.status != "complete" for run in runs)
        if spoilt:
            found.append(
                f"{side}: {spoilt} of {len(runs)} runs failed a validity check ({', '.join(failed)})"
            )
        if broken:
            found.append(f"{side}: {broken} of {len(runs)} runs are not complete")
    return found


def _named(found: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{path} of {cell}" for cell, path in found)
