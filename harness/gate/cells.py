"""A night's runs cut into cells: what was asked, with which setting, a side each."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from harness.compare.measures import Measure
from harness.core.errors import UsageError
from harness.records.reader import Run
from harness.report.labels import group_labels

_MOST_SPOILT = 0.5  # of a side's runs, beyond which its figures carry no verdict


@dataclass(frozen=True)
class Side:
    """The runs of one side of one cell, failed ones included."""

    runs: tuple[Run, ...]

    @property
    def complete(self) -> list[Run]:
        """Those that measured what was planned."""
        return [run for run in self.runs if run.status == "complete"]

    @property
    def broken(self) -> str:
        """Why there are too few complete runs to judge; "" where most are complete."""
        failed = [run for run in self.runs if run.status != "complete"]
        if 2 * len(failed) <= len(self.runs) and self.runs:
            return ""
        why = next((run.reason for run in failed if run.reason), "no reason was recorded")
        return f"{len(failed)} of {len(self.runs)} runs are not complete: {why}"

    def spoilt(self, path: str) -> bool:
        """Whether a failed check spoils this figure in most runs."""
        bad = [run for run in self.complete if any(_spoils(check, path) for check in run.validity)]
        return len(bad) > _MOST_SPOILT * len(self.complete)

    def values(self, measure: Measure) -> tuple[float, ...]:
        """The figure of each complete run that has it, by its median where it has several."""
        return tuple(median(found) for run in self.complete if (found := measure.samples(run)))


def by_cell(runs: Sequence[Run]) -> dict[str, Side]:
    """Runs of one side by their label: engine, workload, and the options in which cells differ."""
    names = group_labels(runs)
    found: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        found[names[run.id]].append(run)
    return {name: Side(tuple(members)) for name, members in found.items()}


def paired_cells(baseline: Sequence[Run], candidate: Sequence[Run]) -> dict[str, tuple[Side, Side]]:
    """The cells of both sides. Raises UsageError where they are not the same, or were asked different requests."""
    theirs, ours = by_cell(baseline), by_cell(candidate)
    if len(theirs) == len(ours) == 1:  # two engines under one gate have different labels
        ((_, one),), ((name, other),) = theirs.items(), ours.items()
        pairs = {name: (one, other)}
    elif set(theirs) == set(ours):
        pairs = {name: (theirs[name], side) for name, side in ours.items()}
    else:
        raise UsageError(
            f"The baseline measured {', '.join(theirs)}, the candidate {', '.join(ours)}: both need the same cells. "
            "Let gate.baseline and gate.candidate differ in nothing that is measured."
        )
    for name, sides in pairs.items():
        plans = [{run.fingerprint.get("plan_sha256") for run in side.complete} for side in sides]
        if all(plans) and plans[0] != plans[1]:
            raise UsageError(
                f"{name}: the two sides were asked different requests, so they are not compared."
            )
    return pairs


def _spoils(check: Mapping[str, object], path: str) -> bool:
    spoils = check.get("spoils")
    if check["ok"] is not False or not isinstance(spoils, list):
        return False
    return any(path == name or path.startswith(f"{name}.") for name in spoils)
