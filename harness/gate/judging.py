"""From runs to findings, in either mode; pure, so that a night can be judged again from its records."""

from collections.abc import Callable, Mapping, Sequence
from statistics import median

from harness.compare.measures import Measure
from harness.gate.cells import Side
from harness.gate.findings import INCONCLUSIVE, PASSED, REGRESSED, Finding
from harness.gate.floor import Floor, beyond, floor_of
from harness.gate.options import GateOptions
from harness.gate.paired import Limits, Series, leans, positive, regressed, visible, worse_p, worsening

Pair = tuple[Side, Side]


def suspects(
    cells: Mapping[str, Pair], measures: Sequence[Measure], options: GateOptions
) -> list[tuple[str, str]]:
    """Cell and path of each figure whose first look asks for a second."""
    limits = _limits(measures, options)
    found = []
    for name, (baseline, candidate) in cells.items():
        for measure in measures:
            series = _series(baseline, candidate, measure)
            if series is not None and leans(series, limits):
                found.append((name, measure.path))
    return found


def judge_paired(
    first: Mapping[str, Pair],
    second: Mapping[str, Pair],
    measures: Sequence[Measure],
    options: GateOptions,
) -> list[Finding]:
    """A finding for each figure. `second`: the second look, empty where none was needed."""
    return [
        finding
        for name, pair in first.items()
        for finding in _judge_pair(name, pair, second.get(name), measures, options)
    ]


def _judge_pair(
    name: str, pair: Pair, again: Pair | None, measures: Sequence[Measure], options: GateOptions
) -> list[Finding]:
    baseline, candidate = pair
    if why := baseline.broken:
        return [_whole(name, INCONCLUSIVE, f"the baseline cannot be judged, {why}")]
    if why := candidate.broken:
        return [_whole(name, REGRESSED, why)]
    limits = _limits(measures, options)
    found = []
    for measure in measures:
        series = _series(baseline, candidate, measure)
        if series is None:
            continue
        two = None if again is None else _series(*again, measure)
        both = series if two is None else series + two
        visible_now = visible(both, options.repeats, limits)
        make = _maker(
            name, measure, both, worsening(both), visible_now, worse_p(both), 1 if two is None else 2
        )
        if baseline.spoilt(measure.path) or candidate.spoilt(measure.path):
            found.append(make(INCONCLUSIVE, "a validity check failed in most runs"))
        elif two is not None and regressed(series, two, limits):
            found.append(make(REGRESSED, f"worse in both looks, together p = {worse_p(both):.2g}"))
        elif visible_now > options.largest_blind:
            why = f"noise: a change of {visible_now:.0%} could have gone unseen"
            found.append(make(INCONCLUSIVE, why))
        elif two is not None and leans(series, limits):
            found.append(make(PASSED, "the first look's suspicion did not hold in a second"))
        else:
            found.append(make(PASSED, f"no worsening of {visible_now:.0%} or more"))
    return found


def judge_stored(
    looks: Sequence[Mapping[str, Side]],
    history: Callable[[str, str], Sequence[float]],
    measures: Sequence[Measure],
    options: GateOptions,
) -> list[Finding]:
    """Tonight's one or two looks against `history(cell, path)`: medians of the nights since the accepted one."""
    found = []
    for name, side in looks[0].items():
        if why := side.broken:
            found.append(_whole(name, REGRESSED, why))
            continue
        for measure in measures:
            values = [each[name].values(measure) for each in looks if name in each]
            if not positive([value for one in values for value in one]):
                continue
            found.append(
                _judge_stored(name, measure, values, side, history(name, measure.path), measures, options)
            )
    return found


def beyond_floor(
    look: Mapping[str, Side],
    history: Callable[[str, str], Sequence[float]],
    measures: Sequence[Measure],
    options: GateOptions,
) -> list[tuple[str, str]]:
    """Cell and path of each figure that is beyond what its history allows: what asks for a second look."""
    found = []
    for name, side in look.items():
        for measure in measures:
            values, past = side.values(measure), history(name, measure.path)
            floor = floor_of(past, _alpha(measures, options)) if len(past) >= options.fewest_nights else None
            if positive(values) and floor and beyond(median(values), floor, measure.higher_is_better):
                found.append((name, measure.path))
    return found


def _judge_stored(
    name: str,
    measure: Measure,
    looks: Sequence[Sequence[float]],
    side: Side,
    past: Sequence[float],
    measures: Sequence[Measure],
    options: GateOptions,
) -> Finding:
    tonight = [median(look) for look in looks]
    every = tuple(value for look in looks for value in look)
    usual = median(past) if past else None
    series = Series((usual,) if usual else every, every, measure.higher_is_better)
    floor = floor_of(past, _alpha(measures, options)) if len(past) >= options.fewest_nights else None
    size = _size(floor, measure)
    make = _maker(name, measure, series, worsening(series) if usual else None, size, None, len(looks))
    if floor is None or size is None:
        nights = f"{len(past)} of {options.fewest_nights} nights"
        why = f"what a night may differ with nothing changed is not known yet ({nights})"
        if len(past) >= options.fewest_nights:
            why = f"its {len(past)} nights resemble their neighbours too much to tell what is usual"
        return make(INCONCLUSIVE, why)
    if all(beyond(value, floor, measure.higher_is_better) for value in tonight) and len(tonight) > 1:
        return make(
            REGRESSED, f"beyond the {size:.0%} that {floor.nights} nights before it allow, in both looks"
        )
    if side.spoilt(measure.path):
        return make(INCONCLUSIVE, "a validity check failed in most runs")
    if size > options.largest_blind:
        return make(
            INCONCLUSIVE, f"a worsening below {size:.0%} cannot be told from what nights differ by here"
        )
    return make(PASSED, f"within the {size:.0%} that {floor.nights} nights allow")


def _size(floor: Floor | None, measure: Measure) -> float | None:
    """The relative worsening that the floor hides: of times factor − 1, of throughput 1 − 1 / factor."""
    if floor is None:
        return None
    return 1 - 1 / floor.factor if measure.higher_is_better else floor.factor - 1


def _series(baseline: Side, candidate: Side, measure: Measure) -> Series | None:
    theirs, ours = baseline.values(measure), candidate.values(measure)
    if not positive(theirs) or not positive(ours):
        return None
    return Series(theirs, ours, measure.higher_is_better)


def _limits(measures: Sequence[Measure], options: GateOptions) -> Limits:
    return Limits(_alpha(measures, options), options.suspicion, options.least_effect)


def _alpha(measures: Sequence[Measure], options: GateOptions) -> float:
    return options.false_alarms / len(measures)


def _maker(
    name: str,
    measure: Measure,
    series: Series,
    change: float | None,
    visible_now: float | None,
    p: float | None,
    looks: int,
) -> Callable[[str, str], Finding]:
    def make(word: str, why: str) -> Finding:
        return Finding(
            cell=name,
            path=measure.path,
            title=measure.title,
            unit=measure.unit,
            word=word,
            why=why,
            baseline=median(series.baseline) if change is not None else None,
            candidate=median(series.candidate),
            worsening=change,
            p=p,
            visible=visible_now,
            looks=looks,
        )

    return make


def _whole(name: str, word: str, why: str) -> Finding:
    return Finding(name, "", "All runs", "", word, why)
