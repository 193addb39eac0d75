"""Stored mode: from tonight's looks and the nights before to findings."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median

from harness.compare.measures import Measure
from harness.gate.cells import Side
from harness.gate.findings import INCONCLUSIVE, PASSED, REGRESSED, Finding
from harness.gate.floor import Floor, beyond, floor_of
from harness.gate.judging import limits_of, lost_runs, undecided
from harness.gate.options import GateOptions
from harness.gate.paired import Series, positive, worsening

History = Callable[
    [str, str], Sequence[float]
]  # by cell and path: medians of the nights since the accepted one
Look = Mapping[str, Side]


def beyond_floor(
    look: Look, history: History, measures: Sequence[Measure], options: GateOptions
) -> list[tuple[str, str]]:
    """Cell and path of each figure that is beyond what its history allows: what asks for a second look."""
    found = []
    for name, side in look.items():
        for measure in measures:
            values = side.values(measure)
            floor = _floor(history(name, measure.path), measures, len(look), options)
            if positive(values) and floor and beyond(median(values), floor, measure.higher_is_better):
                found.append((name, measure.path))
    return found


def judge_stored(
    looks: Sequence[Look],
    expected: Iterable[str],
    history: History,
    measures: Sequence[Measure],
    options: GateOptions,
) -> list[Finding]:
    """A finding for each figure of each cell; `expected`: the cells of the accepted night."""
    names = dict.fromkeys([*expected, *(name for look in looks for name in look)])
    found = []
    for name in names:
        sides = [look.get(name, Side()) for look in looks]
        lost = lost_runs(name, None, sides, options.repeats)
        found += lost
        if any(finding.decisive for finding in lost):
            continue
        for measure in measures:
            past = history(name, measure.path)
            if finding := _judge_figure(name, sides, measure, past, measures, len(names), options):
                found.append(finding)
    return found


def _judge_figure(
    name: str,
    sides: Sequence[Side],
    measure: Measure,
    past: Sequence[float],
    measures: Sequence[Measure],
    cells: int,
    options: GateOptions,
) -> Finding | None:
    """None for a figure that neither tonight nor any night before tells."""
    if not all(side.tells(measure) for side in sides):
        return undecided(name, measure, "tonight's runs do not tell it") if past else None
    if any(side.spoilt(measure) for side in sides):
        return undecided(name, measure, "a validity check failed in most runs")
    looks = [side.values(measure) for side in sides]
    every = tuple(value for look in looks for value in look)
    if not positive(every):
        return undecided(name, measure, "a value of 0 has no ratio to another")
    usual = median(past) if past else None
    floor = _floor(past, measures, cells, options)
    size = _size(floor, measure)
    word, why = _verdict(looks, floor, size, measure, len(past), options)
    return Finding(
        cell=name,
        path=measure.path,
        title=measure.title,
        unit=measure.unit,
        word=word,
        why=why,
        baseline=usual,
        candidate=median(every),
        worsening=worsening([Series((usual,), every, measure.higher_is_better)]) if usual else None,
        visible=size,
        looks=len(looks),
    )


def _verdict(
    looks: Sequence[Sequence[float]],
    floor: Floor | None,
    size: float | None,
    measure: Measure,
    nights: int,
    options: GateOptions,
) -> tuple[str, str]:
    if floor is None or size is None:
        if nights >= options.fewest_nights:
            why = f"its {nights} nights resemble their neighbours too much to tell what is usual"
        else:
            counted = f"{nights} of {options.fewest_nights} nights"
            why = f"what a night may differ with nothing changed is not known yet ({counted})"
        return INCONCLUSIVE, why
    worse = [beyond(median(look), floor, measure.higher_is_better) for look in looks]
    if all(worse) and len(worse) > 1:
        return REGRESSED, f"beyond the {size:.0%} that {floor.nights} nights before it allow, in both looks"
    if size > options.largest_blind:
        return INCONCLUSIVE, f"a worsening below {size:.0%} cannot be told from what nights differ by here"
    return PASSED, f"within the {size:.0%} that {floor.nights} nights allow"


def _floor(
    past: Sequence[float], measures: Sequence[Measure], cells: int, options: GateOptions
) -> Floor | None:
    if len(past) < options.fewest_nights:
        return None
    return floor_of(past, limits_of(options, measures, cells).alpha, options.least_effect)


def _size(floor: Floor | None, measure: Measure) -> float | None:
    """The relative worsening that the floor hides: of times factor − 1, of throughput 1 − 1 / factor."""
    if floor is None:
        return None
    return 1 - 1 / floor.factor if measure.higher_is_better else floor.factor - 1
