"""Latencies, goodput and throughput against the load: one line a setting, with the limits of the SLO."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from harness.metrics.slo import PERCENTILE_LIMITS, SloOptions, limits_of, percentile_limits_of
from harness.records.searches import RecordedSearch
from harness.report.axis import WIDE_RANGE, log_axis, whole_numbers
from harness.report.canvas import drawing
from harness.report.figure import Figure, file_name
from harness.report.load_lines import AT_ONCE, RATE, Line, Point, Question
from harness.report.marks import draw_marks, marks_in_words
from harness.report.palette import INK, run_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_FEWEST_LOADS = 2
_ROOM = 1.08  # above the largest value


@dataclass(frozen=True, slots=True)
class _Panel:
    """One figure over the load. limit: of the SLO, what it says in words. beside: a figure drawn thin and dotted."""

    path: str
    label: str
    limit: float | None = None
    limit_words: str = "SLO"
    beside: str | None = None


_ALWAYS = ("ttft_ms.p50", "ttft_ms.p95", "tpot_ms.p50")
_GOODPUT = _Panel("goodput_per_s", "goodput, req/s", beside="requests_per_s")
_OUTPUT = _Panel("output_tokens_per_s", "output tokens/s")


def against_load(asked: Sequence[Question], searches: Sequence[RecordedSearch]) -> dict[str, Figure]:
    """Figures by their names: one for each question and unit of load of which a setting was given several."""
    found = {}
    for question in asked:
        for unit in (RATE, AT_ONCE):
            lines = question.of(unit)
            if any(len(line.points) >= _FEWEST_LOADS for line in lines):
                figure = _figure(question, lines, unit, searches)
                found[figure.name] = figure
    return found


def _figure(
    question: Question, lines: Sequence[Line], unit: str, searches: Sequence[RecordedSearch]
) -> Figure:
    panels = [panel for panel in _panels(question.slo) if _known(panel.path, lines)]
    paths = [panel.path for panel in panels]
    table = _table(lines, [*paths, *(panel.beside for panel in panels if panel.beside)])
    figure, axes = drawing(panels=len(panels), height=0.9 + 1.35 * len(panels))
    answers = {place: answer for place, line in enumerate(lines) if (answer := _answer(line, searches))}
    for axis, panel in zip(axes, panels, strict=True):
        for place, rows in table.groupby("line", sort=True):
            _draw(axis, panel, rows.dropna(subset=[panel.path]), int(place))
        for place, answer in answers.items():
            axis.axvline(answer, **run_style(place) | {"linestyle": (0, (1, 2)), "linewidth": 1.1})
        _finish(axis, panel, table)
    axes[-1].set_xlabel(unit)
    _loads(axes[-1], table["load"], unit)
    figure.align_ylabels()
    return Figure(
        name=file_name("against-load", question.name, "rate" if unit == RATE else "concurrency"),
        title=f"Latency against load: {question.title}",
        reading=_reading(table, panels, bool(answers)),
        drawn=figure,
        data=table.drop(columns="line"),
        legend={place: line.label for place, line in enumerate(lines)},
        runs={place: line.ids for place, line in enumerate(lines)},
    )


def _panels(slo: SloOptions | None) -> list[_Panel]:
    """The usual latencies and those that the SLO limits, then goodput and throughput.

    A limit of single requests stands at the highest percentile of its latency that is drawn: nearly all must keep it.
    """
    limited = {}
    for key, limit in percentile_limits_of(slo).items():
        latency, q = PERCENTILE_LIMITS[key]
        limited[f"{latency}.p{q:g}"] = limit
    singles = limits_of(slo)
    paths = sorted({*_ALWAYS, *limited, *(f"{name}.p95" for name in singles)}, key=_order)
    highest = {path.partition(".")[0]: path for path in paths}
    panels = []
    for path in paths:
        latency, _, percentile = path.partition(".")
        label = f"{latency.removesuffix('_ms').upper()} {percentile}, ms"
        if path in limited:
            panels.append(_Panel(path, label, limited[path]))
        elif latency in singles and highest[latency] == path:
            panels.append(_Panel(path, label, singles[latency], "SLO of a request"))
        else:
            panels.append(_Panel(path, label))
    return [*panels, _GOODPUT, _OUTPUT]


def _order(path: str) -> tuple[int, float]:
    latency, _, percentile = path.partition(".")
    return ("ttft_ms", "tpot_ms", "e2e_ms").index(latency), float(percentile[1:])


def _known(path: str, lines: Sequence[Line]) -> bool:
    return any(point.figure(path) is not None for line in lines for point in line.points)


def _table(lines: Sequence[Line], paths: Sequence[str]) -> pd.DataFrame:
    """A row for each point of each line: medians over its runs."""
    return pd.DataFrame(
        [_row(place, line, point, paths) for place, line in enumerate(lines) for point in line.points]
    )


def _row(place: int, line: Line, point: Point, paths: Sequence[str]) -> dict[str, object]:
    return {
        "line": place,
        "setting": line.label,
        "load": point.load,
        "load_unit": line.unit,
        "runs": " ".join(run.id for run in point.runs),
        **{path: point.figure(path) for path in dict.fromkeys(paths)},
        "missed_slo": point.missed,
        "doubtful": point.doubtful(paths),
        "errors": point.errors,
    }


def _draw(axis: "Axes", panel: _Panel, rows: pd.DataFrame, place: int) -> None:
    style = run_style(place)
    axis.plot(rows["load"], rows[panel.path].astype(float), **style | {"linewidth": 1.3}, zorder=2)
    if panel.beside:
        dotted = style | {"linestyle": (0, (1, 1.5)), "linewidth": 1.1}
        axis.plot(rows["load"], rows[panel.beside].astype(float), **dotted)
    draw_marks(axis, rows, "load", panel.path, place)


def _finish(axis: "Axes", panel: _Panel, table: pd.DataFrame) -> None:
    """Label, limit and scale."""
    axis.set_ylabel(panel.label)
    values = [*table[panel.path].dropna(), *([panel.limit] if panel.limit is not None else [])]
    if panel.beside:
        values += list(table[panel.beside].dropna())
    least, most = float(min(values)), float(max(values))
    if least > 0 and most / least > WIDE_RANGE:
        log_axis(axis, "y")
    else:
        axis.set_ylim(0, most * _ROOM or 1)
    if panel.limit is not None:
        axis.axhline(panel.limit, color=INK, linestyle=(0, (4, 2)), linewidth=0.9)
        low = (
            panel.limit < 0.5 * axis.get_ylim()[1]
        )  # the words stand where there is room: loads begin with low values
        axis.annotate(
            panel.limit_words, (0.01, panel.limit), xycoords=("axes fraction", "data"), xytext=(0, 2 if low else -2),
            textcoords="offset points", ha="left", va="bottom" if low else "top", fontsize=7.5, color=INK,
        )  # fmt: skip


def _loads(axis: "Axes", loads: "pd.Series[float]", unit: str) -> None:
    """A wide range of loads is doubled from mark to mark: 1, 2, 4 … 64; sessions are counted."""
    least, most = float(loads.min()), float(loads.max())
    if least > 0 and most / least > WIDE_RANGE:
        log_axis(axis, "x", doubling=True)
        return
    if unit == AT_ONCE:
        whole_numbers(axis, "x")
    axis.set_xlim(0, most * 1.05)


def _answer(line: Line, searches: Sequence[RecordedSearch]) -> float | None:
    """What a search found whose probes are points of this line."""
    ids = set(line.ids)
    for search in searches:
        if (
            search.answer
            and search.answer["value"] is not None
            and ids & {probe.run for probe in search.probes}
        ):
            return float(search.answer["value"])
    return None


def _reading(table: pd.DataFrame, panels: Sequence[_Panel], answered: bool) -> str:
    words = ["One point a load. TTFT counts from the schedule."]
    if any(panel.limit is not None for panel in panels):
        words.append("Dashed: the limit of the SLO.")
    if any(panel is _GOODPUT for panel in panels):
        words.append("Goodput: requests per second that kept every limit; dotted, all that were answered.")
    if answered:
        words.append("The vertical dotted line is the answer of the search.")
    return " ".join([*words, *marks_in_words(table)])
