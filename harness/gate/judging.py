"""From the looks of a paired night to findings; pure, so that a night can be judged again from its records.

What cannot be judged has not passed: runs that are missing, figures that tonight does not tell, failed checks.
"""

from collections.abc import Mapping, Sequence

from harness.compare.measures import Measure
from harness.gate.cells import Side
from harness.gate.findings import INCONCLUSIVE, PASSED, REGRESSED, Finding
from harness.gate.options import GateOptions
from harness.gate.paired import (
    Limits,
    Series,
    leans,
    leans_twice,
    level,
    positive,
    regressed,
    too_few,
    visible,
    worse_p,
    worsening,
)

Pair = tuple[Side, Side]
Look = Mapping[str, Pair]
_NOTHING = (Side(), Side())


def suspects(look: Look, measures: Sequence[Measure], options: GateOptions) -> list[tuple[str, str]]:
    """Cell and path of each figure whose first look asks for a second."""
    limits = limits_of(options, measures, len(look))
    found = []
    for name, pair in look.items():
        for measure in measures:
            series = _series(pair, measure)
            if series is not None and leans(series, limits):
                found.append((name, measure.path))
    return found


def judge_paired(looks: Sequence[Look], measures: Sequence[Measure], options: GateOptions) -> list[Finding]:
    """A finding for each figure of each cell. `looks`: one, or two where the first asked for another."""
    names = dict.fromkeys(name for look in looks for name in look)
    limits = limits_of(options, measures, len(names))
    found = []
    for name in names:
        pairs = [look.get(name, _NOTHING) for look in looks]
        lost = lost_runs(name, [one for one, _ in pairs], [other for _, other in pairs], options.repeats)
        found += lost
        if any(finding.decisive for finding in lost):
            continue
        for measure in measures:
            if finding := _judge_figure(name, pairs, measure, limits, options):
                found.append(finding)
    return found


def lost_runs(
    name: str, baseline: Sequence[Side] | None, candidate: Sequence[Side], planned: int
) -> list[Finding]:
    """What missing runs say, look by look; `baseline` is None where there is none to compare with.

    More than half of a side's runs missing decides the cell: with the baseline's it cannot be judged, with the
    candidate's it is broken. Fewer, but more than the baseline lacks, keep the cell from passing.
    """
    for number, side in enumerate(candidate):
        theirs = baseline[number].lost(planned) if baseline is not None else 0
        ours = side.lost(planned)
        if 2 * theirs > planned and baseline is not None:
            why = (
                f"{theirs} of {planned} runs of the baseline are not complete: {baseline[number].why_lost()}"
            )
            return [_whole(name, INCONCLUSIVE, why, True)]
        why = f"{ours} of {planned} runs are not complete: {side.why_lost()}"
        if 2 * ours > planned:
            return [_whole(name, REGRESSED, why, True)]
        if ours > theirs:
            return [_whole(name, INCONCLUSIVE, why, False)]
    return []


def limits_of(options: GateOptions, measures: Sequence[Measure], cells: int) -> Limits:
    """The night's false alarms are shared by all figures of all cells (Bonferroni)."""
    alpha = options.false_alarms / (len(measures) * max(cells, 1))
    return Limits(alpha, options.suspicion, options.least_effect)


def _judge_figure(
    name: str, pairs: Sequence[Pair], measure: Measure, limits: Limits, options: GateOptions
) -> Finding | None:
    """None where the baseline does not tell the figure, so that there is nothing to compare with."""
    if not all(baseline.tells(measure) for baseline, _ in pairs):
        return None
    if not all(candidate.tells(measure) for _, candidate in pairs):
        return undecided(name, measure, "tonight's runs do not tell it")
    if any(side.spoilt(measure) for pair in pairs for side in pair):
        return undecided(name, measure, "a validity check failed in most runs")
    found = [_series(pair, measure) for pair in pairs]
    looks = [one for one in found if one is not None]
    if len(looks) < len(found):
        return undecided(name, measure, "a value of 0 has no ratio to another")
    fewest = min(min(one.runs) for one in looks)
    if too_few(looks, limits):
        return undecided(name, measure, f"too few runs that count ({fewest} a side) to tell anything")
    seen, p = visible(looks, fewest, limits), worse_p(looks, limits)
    word, why = PASSED, f"no worsening of {seen:.0%} or more"
    if regressed(looks, limits):
        word, why = REGRESSED, f"worse in both looks, together p = {p:.2g}"
    elif leans_twice(looks, limits):
        word, why = INCONCLUSIVE, f"worse in both looks, but not beyond the errors allowed (p = {p:.2g})"
    elif seen > options.largest_blind:
        word, why = INCONCLUSIVE, f"noise: a change of {seen:.0%} could have gone unseen"
    elif leans(looks[0], limits):
        again = len(looks) > 1
        held = "did not hold in a second" if again else "was not followed by a second"
        word, why = (PASSED if again else INCONCLUSIVE), f"the first look's suspicion {held}"
    return Finding(
        cell=name,
        path=measure.path,
        title=measure.title,
        unit=measure.unit,
        word=word,
        why=why,
        baseline=level([one.baseline for one in looks]),
        candidate=level([one.candidate for one in looks]),
        worsening=worsening(looks),
        p=p,
        visible=seen,
        looks=len(looks),
    )


def undecided(name: str, measure: Measure, why: str) -> Finding:
    """A figure that cannot be judged tonight."""
    return Finding(name, measure.path, measure.title, measure.unit, INCONCLUSIVE, why)


def _series(pair: Pair, measure: Measure) -> Series | None:
    theirs, ours = (side.values(measure) for side in pair)
    if not positive(theirs) or not positive(ours):
        return None
    return Series(theirs, ours, measure.higher_is_better)


def _whole(name: str, word: str, why: str, decisive: bool) -> Finding:
    return Finding(name, "", "All runs", "", word, why, decisive=decisive)
