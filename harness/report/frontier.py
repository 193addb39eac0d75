"""What memory buys: quality and speed of each group of runs against the KV cache a request takes, with the frontier.

A group is on the frontier (Pareto) where no other has both less memory and a better figure.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from harness.metrics.quality_figures import QUALITY_FIGURES
from harness.records.paths import pick
from harness.records.reader import Run
from harness.report.axis import WIDE_RANGE, log_axis
from harness.report.canvas import drawing
from harness.report.figure import Figure, file_name
from harness.report.palette import INK, PALETTE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_KV = "memory.kv_per_request_bytes"
_MB = 1e6
_FEWEST_GROUPS = 3  # two points are a comparison, not a frontier
_LONGEST_NAME = 34


@dataclass(frozen=True, slots=True)
class Measure:
    """A figure against memory. path: its key in a run's summary."""

    path: str
    label: str
    higher_is_better: bool


_QUALITY = tuple(Measure(one.path, one.label, one.higher_is_better) for one in QUALITY_FIGURES)
_READING = {
    "Quality": "Better is down for perplexity and up for everything else; each ranks settings differently.",
    "Speed": "Further down is faster.",
}
_SPEED = (Measure("tpot_ms.p50", "TPOT p50, ms", False), Measure("ttft_ms.p50", "TTFT p50, ms", False))


def frontier_figures(runs: Sequence[Run], labels: Mapping[str, str]) -> tuple[list[Figure], list[Figure]]:
    """Figures of quality and of speed, one for each workload with at least three groups that tell their KV cache.

    labels: the group of each run, by its id.
    """
    by_workload: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        if run.status == "complete" and pick(run.summary, _KV):
            by_workload[str(pick(run.config, "workload.name") or "")].append(run)
    quality: list[Figure] = []
    speed: list[Figure] = []
    for workload, members in by_workload.items():
        names = {run.id: labels[run.id].replace(f" · {workload}", "", 1) for run in members}
        for found, what, measures in ((quality, "Quality", _QUALITY), (speed, "Speed", _SPEED)):
            if figure := _figure(what, workload, measures, members, names):
                found.append(figure)
    return quality, speed


def frontier(memory: Sequence[float], values: Sequence[float], higher_is_better: bool) -> list[int]:
    """Positions of the points that no other beats in both, by increasing memory. A tie in both keeps the first."""
    sign = -1.0 if higher_is_better else 1.0
    found: list[int] = []
    best = np.inf
    for position in sorted(range(len(memory)), key=lambda place: (memory[place], sign * values[place])):
        if sign * values[position] < best:
            best = sign * values[position]
            found.append(position)
    return found


def _figure(
    what: str, workload: str, measures: Sequence[Measure], runs: Sequence[Run], names: Mapping[str, str]
) -> Figure | None:
    tables = [
        (measure, table)
        for measure in measures
        if len(table := _table(measure, runs, names)) >= _FEWEST_GROUPS
    ]
    if not tables:
        return None
    figure, axes = drawing(panels=len(tables), height=1.2 + 2.2 * len(tables))
    for panel, (measure, table) in zip(axes, tables, strict=True):
        _draw(panel, measure, table)
    axes[-1].set_xlabel("KV cache of a request, MB")
    least, most = (edge([table["kv_mb"].agg(edge.__name__) for _, table in tables]) for edge in (min, max))
    if most / least > WIDE_RANGE:
        log_axis(axes[-1], "x")
    name = file_name(what.lower(), "against-memory", workload)
    return Figure(
        name=name,
        title=f"{what} against memory: {workload}",
        reading=f"Each point is one setting; the line joins those that no other beats in both. {_READING[what]}",
        drawn=figure,
        data=pd.concat([table for _, table in tables], ignore_index=True),
    )


def _table(measure: Measure, runs: Sequence[Run], names: Mapping[str, str]) -> pd.DataFrame:
    """A row for each group that has both figures: medians over its runs, and whether it is on the frontier."""
    points: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for run in runs:
        value = pick(run.summary, measure.path)
        if value is not None:
            points[names[run.id]].append((float(pick(run.summary, _KV)) / _MB, float(value)))
    rows = [
        {
            "setting": name,
            "kv_mb": median(memory for memory, _ in found),
            "figure": measure.label,
            "value": median(value for _, value in found),
        }
        for name, found in points.items()
    ]
    table = pd.DataFrame(rows, columns=["setting", "kv_mb", "figure", "value"])
    on = frontier(table["kv_mb"].tolist(), table["value"].tolist(), measure.higher_is_better)
    table["on_frontier"] = [position in on for position in range(len(table))]
    return table


def _draw(axes: "Axes", measure: Measure, table: pd.DataFrame) -> None:
    best = table[table["on_frontier"]].sort_values("kv_mb")
    others = table[~table["on_frontier"]]
    axes.plot(others["kv_mb"], others["value"], "o", color=PALETTE[6], markersize=4)
    axes.plot(best["kv_mb"], best["value"], "o-", color=PALETTE[0], markersize=5, drawstyle="steps-post")
    middle = float(np.sqrt(table["kv_mb"].min() * table["kv_mb"].max()))
    for place, (name, memory, value) in enumerate(
        zip(best["setting"], best["kv_mb"], best["value"], strict=True)
    ):
        left = memory > middle  # towards the middle, so that no name leaves the drawing
        axes.annotate(
            name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…",
            (memory, value),
            xytext=(
                -6 if left else 6,
                -10 if place % 2 else 5,
            ),  # above and below in turn: neighbours are close
            textcoords="offset points",
            ha="right" if left else "left",
            fontsize=7.5,
            color=INK,
        )
    axes.set_ylabel(measure.label)
    axes.margins(x=0.08, y=0.18)
