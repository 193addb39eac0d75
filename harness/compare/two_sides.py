"""Candidate against baseline: each figure's verdict, and everything else in which the two sides differ."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from harness.compare.cells import Cell
from harness.compare.measures import Measure
from harness.compare.more_items import size_option
from harness.compare.quality_verdict import Paired, not_paired, quality_verdict
from harness.compare.statistics import FEWEST_RUNS, Verdict, verdict
from harness.metrics.quality_figures import QUALITY_FIGURES
from harness.records.reader import Run
from harness.records.setting_keys import MEASURES_NOTHING, SEEDS
from harness.records.spoilt import spoiling
from harness.report.values import flatten

_QUALITY = {figure.path: figure for figure in QUALITY_FIGURES}
_FALSE_ALARMS = 0.05  # of one cell, shared by the figures that decide (Bonferroni)
# What tells a run apart without explaining anything, and what is compared elsewhere.
_NO_CONTEXT = ("plan_sha256", "workload", "seed", "sources", "notes", "caveats")
_NO_OPTION = (*MEASURES_NOTHING, *SEEDS)


@dataclass(frozen=True, slots=True)
class Judged:
    """A figure of both sides: medians over the runs, and the verdict of the candidate.

    spoilt: in how many runs a failed check spoils it. paired: of quality, the difference by item; both figures are
    then over those items.
    """

    measure: Measure
    baseline: float
    candidate: float
    verdict: Verdict
    spoilt: int
    paired: Paired | None = None

    @property
    def word(self) -> str:
        """faster, slower, smaller, …, same or inconclusive."""
        words = {"better": self.measure.better, "worse": self.measure.worse}
        return words.get(self.verdict.word, self.verdict.word)


@dataclass(frozen=True, slots=True)
class Difference:
    """Something that is not the same on both sides. part: "option" or "context". Values are in words."""

    part: str
    name: str
    baseline: str
    candidate: str


@dataclass(frozen=True)
class CellComparison:
    """One cell. spoilt: on each side, how many runs failed a validity check."""

    cell: Cell
    judged: tuple[Judged, ...]
    differences: tuple[Difference, ...]
    spoilt: tuple[int, int]

    @property
    def word(self) -> str:
        """What the deciding figures say together: a side that wins one and loses another is "mixed"."""
        words = {one.verdict.word for one in self.judged if one.measure.gating}
        if {"better", "worse"} <= words:
            return "mixed"
        found = next((word for word in ("worse", "better", "inconclusive") if word in words), "same")
        return found if words else "inconclusive"

    @property
    def advice(self) -> str:
        """What to do so that more is decided; "" where all deciding figures are, or more of the same is no help."""
        open_ones = [one for one in self.judged if one.measure.gating and one.verdict.word == "inconclusive"]
        over_runs = [one for one in open_ones if one.measure.path not in _QUALITY]
        found = []
        if over_runs and min(len(self.cell.baseline), len(self.cell.candidate)) < FEWEST_RUNS:
            repeats = f"repeats={FEWEST_RUNS}"
            found.append(
                f"A verdict takes {FEWEST_RUNS} runs a side: measure both in one command with {repeats}."
            )
        elif over_runs:
            found.append(
                "More repeats in one command (repeats=10), on a quiet machine, would show a smaller change."
            )
        # Runs answer the same items alike, so that repeats add nothing; a figure that could show nothing is no matter
        # of how many items either, and its reason stands beside it.
        few = [
            _QUALITY[one.measure.path]
            for one in open_ones
            if one.measure.path in _QUALITY and one.verdict.detectable is not None
        ]
        if few:
            sizes = (size_option(self.cell.candidate[0], figure.task) for figure in few)
            larger = " and ".join(dict.fromkeys(size[0] for size in sizes if size)) or "longer quality tasks"
            seeds = ", or more seeds" if any(figure.chance is not None for figure in few) else ""
            found.append(
                f"More items on both sides (a larger {larger}{seeds}) would show a smaller change of quality."
            )
        return " ".join(found)


def judge(cell: Cell, measures: Sequence[Measure]) -> CellComparison:
    """Every figure that both sides have. Those that decide share 5 % of false alarms, one that informs has 5 %."""
    gating = sum(measure.gating for measure in measures) or 1
    judged = []
    for measure in measures:
        theirs, ours = _samples(cell.baseline, measure), _samples(cell.candidate, measure)
        if not theirs or not ours:
            continue
        alpha = _FALSE_ALARMS / gating if measure.gating else _FALSE_ALARMS
        if measure.path in _QUALITY:
            judged.append(_judge_quality(cell, measure, theirs, ours, alpha))
            continue
        if not median(map(median, theirs)):
            continue
        found = verdict(theirs, ours, measure.higher_is_better, measure.least_effect, alpha)
        spoilt = [
            sum(bool(spoiling(run, [measure.path])) for run in side)
            for side in (cell.baseline, cell.candidate)
        ]
        most = any(
            2 * bad > len(side) for bad, side in zip(spoilt, (cell.baseline, cell.candidate), strict=True)
        )
        if most:
            found = replace(found, word="inconclusive", why="a failed check spoils it in most runs")
        before, after = (median(map(median, side)) for side in (theirs, ours))
        judged.append(Judged(measure, before, after, found, sum(spoilt)))
    return CellComparison(
        cell, tuple(judged), differences(cell), (_spoilt(cell.baseline), _spoilt(cell.candidate))
    )


def _judge_quality(
    cell: Cell,
    measure: Measure,
    theirs: Sequence[Sequence[float]],
    ours: Sequence[Sequence[float]],
    alpha: float,
) -> Judged:
    """By the items that both sides were asked; what spoils a time spoils no answer."""
    figure = _QUALITY[measure.path]
    found = quality_verdict(cell.baseline, cell.candidate, figure, measure.least_effect, alpha)
    if found is None:
        found = not_paired(*(median(map(median, side)) for side in (theirs, ours)))
    return Judged(measure, found.baseline, found.candidate, found.verdict, 0, found.paired)


def differences(cell: Cell) -> tuple[Difference, ...]:
    """Options and context (versions, machine, cores, model) of which the two sides have not the same values."""
    found = []
    for part, name in (("option", "config"), ("context", "fingerprint")):
        sides = [[flatten(getattr(run, name)) for run in side] for side in (cell.baseline, cell.candidate)]
        for key in sorted({key for side in sides for values in side for key in values}):
            if key in (_NO_OPTION if part == "option" else _NO_CONTEXT):
                continue
            theirs, ours = ({_word(values.get(key)) for values in side} for side in sides)
            if theirs != ours:
                found.append(Difference(part, key, " or ".join(sorted(theirs)), " or ".join(sorted(ours))))
    return tuple(found)


def _samples(runs: Sequence[Run], measure: Measure) -> list[list[float]]:
    return [found for run in runs if (found := measure.samples(run))]


def _spoilt(runs: Sequence[Run]) -> int:
    return sum(any(check["ok"] is False for check in run.validity) for run in runs)


def _word(value: object) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
