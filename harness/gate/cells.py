"""A night's runs cut into cells: what was asked, with which setting, a side each."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from harness.compare.measures import Measure
from harness.core.errors import UsageError
from harness.records.paths import pick
from harness.records.reader import Run
from harness.records.spoilt import spoiling
from harness.report.labels import group_labels

# What the machine does meanwhile falls on either side of runs in turns with the same chance: it favours nobody, and
# how much more it makes runs differ is in the noise found among them. Leaving them out would only lose them.
SHARED_IN_TURNS = ("same_pace",)


@dataclass(frozen=True)
class Side:
    """The runs of one side of one cell in one look, failed ones included.

    aside: names of checks that make no run of it unusable.
    """

    runs: tuple[Run, ...] = ()
    aside: tuple[str, ...] = ()

    @property
    def complete(self) -> list[Run]:
        """Those that measured what was planned."""
        return [run for run in self.runs if run.status == "complete"]

    def lost(self, planned: int) -> int:
        """How many of the planned runs are not complete, those included that left no record at all."""
        return max(planned, len(self.runs)) - len(self.complete)

    def why_lost(self) -> str:
        """The first reason that a run gives."""
        failed = [run for run in self.runs if run.status != "complete"]
        return next((run.reason for run in failed if run.reason), "they left no record that says why")

    def values(self, measure: Measure) -> tuple[float, ...]:
        """The figure of each complete run that has it and that no failed check spoils, by its median."""
        sound = [run for run in self.complete if not spoiling(run, [measure.path], self.aside)]
        return tuple(median(found) for run in sound if (found := measure.samples(run)))

    def tells(self, measure: Measure) -> bool:
        """Whether any complete run has the figure, spoilt or not."""
        return any(pick(run.summary, measure.path) is not None for run in self.complete)

    def spoilt(self, measure: Measure) -> bool:
        """Whether failed checks spoil the figure in more than half of the complete runs."""
        bad = [run for run in self.complete if spoiling(run, [measure.path], self.aside)]
        return 2 * len(bad) > len(self.complete)


def by_cell(runs: Sequence[Run], aside: tuple[str, ...] = ()) -> dict[str, Side]:
    """Runs of one side by what they were asked and the options in which cells differ; by engine where several ran.

    aside: checks that make no run unusable.
    """
    names = group_labels(runs)
    engines = {str(pick(run.config, "backend.name")) for run in runs}
    shared = f"{engines.pop()} · " if len(engines) == 1 else ""
    found: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        found[names[run.id].removeprefix(shared) if shared else names[run.id]].append(run)
    return {name: Side(tuple(members), aside) for name, members in found.items()}


def paired_cells(baseline: Sequence[Run], candidate: Sequence[Run]) -> dict[str, tuple[Side, Side]]:
    """The cells of both sides; one that a side lacks is empty there.

    Raises UsageError where no cell is on both sides, or where one was asked different requests or another model.
    """
    theirs, ours = by_cell(baseline, SHARED_IN_TURNS), by_cell(candidate, SHARED_IN_TURNS)
    if len(theirs) == len(ours) == 1:  # whatever the options are that tell the sides apart
        ((_, one),), ((name, other),) = theirs.items(), ours.items()
        pairs = {name: (one, other)}
    else:
        names = dict.fromkeys([*theirs, *ours])
        pairs = {name: (theirs.get(name, Side()), ours.get(name, Side())) for name in names}
    if theirs and ours and not any(one.runs and other.runs for one, other in pairs.values()):
        raise UsageError(
            f"The baseline measured {', '.join(theirs)}, the candidate {', '.join(ours)}: both need the same cells. "
            "Let gate.baseline and gate.candidate differ in nothing that is measured."
        )
    for name, sides in pairs.items():
        asked = [asked_of(side) for side in sides]
        if all(asked) and asked[0] != asked[1]:
            raise UsageError(
                f"{name}: the two sides were asked different requests or of another model, so they are not compared."
            )
    return pairs


def asked_of(side: Side) -> list[str]:
    """SHA-256 of the requests and of the model of a cell, one pair for each seed, sorted."""
    return sorted(
        {
            f"{run.fingerprint.get('plan_sha256')} {run.fingerprint.get('model_sha256')}"
            for run in side.complete
        }
    )
