"""A search or a sweep of rates in a report: its probes as a table, and each figure against the load."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from harness.records.paths import pick
from harness.records.reader import Run
from harness.records.searches import RecordedProbe, RecordedSearch
from harness.report.canvas import INK, PALETTE, drawing, to_svg
from harness.report.figures import Figure
from harness.report.values import MISSING, number, percent

_VERDICTS = {True: "met", False: "missed", None: MISSING}
_MET, _MISSED, _NOT_HELD = PALETTE[2], PALETTE[1], PALETTE[0]
_WIDE_RANGE = 15  # between smallest and largest value, from which an axis is logarithmic


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
    """A search as the page shows it. bracket: how wide it was left, None for a sweep or where it has no two ends."""

    id: str
    title: str
    sentence: str
    bracket: str | None
    unit: str
    measures: list[Measure]
    rows: list[ProbeRow]
    figure: Figure


def section(search: RecordedSearch, runs: Sequence[Run]) -> SearchSection:
    """runs: in the order of the page, among them the probes'."""
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
        figure=_figure(search, measures),
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


def _figure(search: RecordedSearch, measures: Sequence[Measure]) -> Figure:
    figure, panels = drawing(panels=len(measures), height=1.1 + 1.25 * len(measures))
    loads = np.array([probe.value for probe in search.probes])
    colours = [{True: _MET, False: _MISSED, None: _NOT_HELD}[probe.met] for probe in search.probes]
    marks = ["X" if probe.met is False else "o" for probe in search.probes]
    for panel, measure in zip(panels, measures, strict=True):
        values = np.array([np.nan if value is None else value for value in measure.values], dtype=float)
        order = np.argsort(loads, kind="stable")
        known = order[~np.isnan(values[order])]
        panel.plot(loads[known], values[known], color=INK, alpha=0.35, linewidth=0.9)
        for place in known:
            panel.plot(loads[place], values[place], marks[place], color=colours[place], markersize=5.5)
        panel.set_ylabel(
            measure.heading if measure.at_least else f"{measure.heading}, {measure.unit.split(',')[0]}"
        )
        seen = [*values[known], *([measure.limit] if measure.limit is not None else [])]
        if seen and min(seen) > 0 and max(seen) / min(seen) > _WIDE_RANGE:
            panel.set_yscale("log")
            panel.yaxis.set_major_formatter("{x:g}")
            panel.yaxis.set_minor_formatter("")
        elif not measure.at_least:
            panel.set_ylim(0, None)
        if measure.limit is not None:
            panel.axhline(measure.limit, color=INK, linestyle=(0, (4, 2)), linewidth=0.9)
            panel.annotate(
                "SLO", (1, measure.limit), xycoords=("axes fraction", "data"), ha="right", va="bottom"
            )
        if search.answer and search.answer["value"] is not None:
            panel.axvline(search.answer["value"], color=INK, linestyle=(0, (1, 2)), linewidth=0.9)
    panels[-1].set_xlabel(search.unit)
    panels[-1].set_xlim(0, float(loads.max()) * 1.05)
    answered = (
        " The dotted line is the answer." if search.answer and search.answer["value"] is not None else ""
    )
    held = any(measure.limit is not None for measure in measures)
    told = " Dashed: the limit of the SLO; a circle met all of them, a cross missed one." if held else ""
    name = f"search-{search.id}"
    return Figure(
        name=name,
        title=f"What {search.unit} cost",
        reading=f"Each mark is a probe.{told}{answered}",
        svg=to_svg(figure, name),
        data=pd.DataFrame(
            {
                "probe": range(1, len(search.probes) + 1),
                "run": [probe.run for probe in search.probes],
                "load": loads,
                "met": [probe.met for probe in search.probes],
                **{measure.key: measure.values for measure in measures},
            }
        ),
    )
