"""A search or a sweep of rates in a report: its probes as a table."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from harness.records.paths import pick
from harness.records.reader import Run
from harness.records.searches import RecordedProbe, RecordedSearch
from harness.report.values import MISSING, number, percent

_VERDICTS = {True: "met", False: "missed", None: MISSING}


@dataclass(frozen=True, slots=True)
class Measure:
    """One figure of all probes. limit: what it is held against, None where nothing.

    values: one a probe, None where there is none (a percentile that falls on a failed request has none).
    """

    key: str
    heading: str
    unit: str
    limit: float | None
    values: tuple[float | None, ...]
    shown: Callable[[float | None], str] = number
    at_least: bool = False

    def misses(self, value: float | None) -> bool:
        """Whether this value is on the wrong side of the limit."""
        if self.limit is None:
            return False
        return value is None or (value < self.limit if self.at_least else value > self.limit)


@dataclass(frozen=True, slots=True)
class ProbeRow:
    """A probe as the page shows it. run: its id. cells: text and whether it missed. details: anchor of its run, or
    None where the page has no such run.
    """

    number: int
    run: str
    value: str
    verdict: str
    met: bool | None
    cells: list[tuple[str, bool]]
    why: str
    is_answer: bool
    details: str | None


@dataclass(frozen=True, slots=True)
class SearchSection:
    """A search as the page shows it. bracket: how wide it was left, None for a sweep or where it has no two ends.

    drawn_in: anchor of the figure in which its probes are, None where there is none.
    """

    id: str
    title: str
    sentence: str
    bracket: str | None
    unit: str
    measures: list[Measure]
    rows: list[ProbeRow]
    drawn_in: str | None


def section(search: RecordedSearch, runs: Sequence[Run], drawn_in: str | None = None) -> SearchSection:
    """drawn_in: anchor of the figure that shows the probes. runs: in the page's order, among them the probes'."""
    by_id = {run.id: run for run in runs}
    measures = _measures(search, by_id)
    anchors = {run.id: f"details-{place}" for place, run in enumerate(runs, 1)}
    answer = search.answer["value"] if search.answer else None
    rows = [
        ProbeRow(
            number=place,
            run=probe.run,
            value=f"{probe.value:g}",
            verdict=_VERDICTS[probe.met] if probe.status != "failed" or probe.met is False else "failed",
            met=probe.met,
            cells=[(m.shown(m.values[place - 1]), m.misses(m.values[place - 1])) for m in measures],
            why=probe.stopped or probe.remarks or ("" if probe.status == "complete" else probe.status),
            is_answer=answer is not None and probe.value == answer and probe.met is True,
            details=anchors.get(probe.run),
        )
        for place, probe in enumerate(search.probes, 1)
    ]
    return SearchSection(
        id=search.id,
        title="The search" if search.answer else "The loads that were tried",
        sentence=search.sentence,
        bracket=bracket(search),
        unit=search.unit,
        measures=measures,
        rows=rows,
        drawn_in=drawn_in,
    )


def bracket(search: RecordedSearch) -> str | None:
    """Between which two loads the highest within the SLO lies, in words."""
    met, missed = (search.answer or {}).get("value"), (search.answer or {}).get("missed")
    if met is None or missed is None:
        return None
    width = missed - met
    return (
        f"The limit lies between {met:g} (met) and {missed:g} (missed): {width:g} {search.unit} wide, "
        f"{percent(width / met)} of the answer."
    )


def _measures(search: RecordedSearch, runs: Mapping[str, Run]) -> list[Measure]:
    """What the SLO limits; where it limits nothing, the time to the first token. Then the token rate."""
    probes = search.probes
    measures = [_of_limit(key, limit, probes) for key, limit in _limits(probes).items()]
    if any(probe.attainment is not None for probe in probes):
        shares = tuple(probe.attainment for probe in probes)
        measures.append(Measure("within", "Within SLO", "of requests", search.needed, shares, _share, True))
    if not measures:
        late = tuple(pick(runs[p.run].summary, "ttft_ms.p95") if p.run in runs else None for p in probes)
        measures.append(Measure("ttft_p95_ms", "TTFT p95", "ms", None, late))
    rates = tuple(probe.output_tokens_per_s for probe in probes)
    return [*measures, Measure("output_tokens_per_s", "Output", "tokens/s", None, rates)]


def _share(value: float | None) -> str:
    """To a tenth of a percent: what is needed is often 99 %."""
    return MISSING if value is None else f"{100 * value:.1f} %"


def _limits(probes: Sequence[RecordedProbe]) -> dict[str, float]:
    return {limit["key"]: limit["limit_ms"] for probe in probes for limit in probe.limits}


def _of_limit(key: str, limit: float, probes: Sequence[RecordedProbe]) -> Measure:
    values = [
        next((held["value_ms"] for held in probe.limits if held["key"] == key), None) for probe in probes
    ]
    latency, percentile, _ = key.split("_")
    return Measure(key, f"{latency.upper()} {percentile}", f"ms, limit {limit:g}", limit, tuple(values))
