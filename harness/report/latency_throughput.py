"""What all users get together against what each of them gets: the frontier of latency and throughput."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from harness.report.canvas import drawing
from harness.report.figure import Figure, file_name
from harness.report.frontier import frontier
from harness.report.load_lines import Line, Question
from harness.report.marks import draw_marks, marks_in_words
from harness.report.palette import INK, run_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_FEWEST_POINTS = 3  # two are a comparison, no frontier
_MOST_NAMED = 40  # points; more words would cover each other
_RATE, _TPOT = "output_tokens_per_s", "tpot_ms.p50"


def latency_throughput(asked: Sequence[Question]) -> list[Figure]:
    """One for each question with at least three points that have both figures."""
    return [figure for question in asked if (figure := _figure(question)) is not None]


def _figure(question: Question) -> Figure | None:
    table = points_table(question.lines)
    if len(table) < _FEWEST_POINTS:
        return None
    figure, (axes,) = drawing(height=3.4)
    best = table[table["on_frontier"]].sort_values("tokens_per_s_per_user")
    axes.plot(
        best["tokens_per_s_per_user"], best["output_tokens_per_s"],
        color=INK, alpha=0.22, linewidth=5, drawstyle="steps-pre", solid_capstyle="round", zorder=1,
    )  # fmt: skip
    drawn = [(place, rows) for place, rows in table.groupby("line", sort=True)]
    for place, rows in drawn:
        _draw_line(axes, rows, int(place))
    if len(table) <= _MOST_NAMED:
        for row in table.itertuples():
            axes.annotate(
                f"{row.load:g}", (row.tokens_per_s_per_user, row.output_tokens_per_s), xytext=(5, 4),
                textcoords="offset points", fontsize=7.5, color=INK, gid=run_style(int(row.line))["gid"],
            )  # fmt: skip
    axes.set(xlabel="tokens/s of a user (1000 / TPOT p50 in ms)", ylabel="output tokens/s of all users")
    axes.set_xlim(0, float(table["tokens_per_s_per_user"].max()) * 1.1)
    axes.set_ylim(0, float(table["output_tokens_per_s"].max()) * 1.12)
    return Figure(
        name=file_name("latency-throughput", question.name),
        title=f"Throughput of all against the speed of each: {question.title}",
        reading=_reading(question, table),
        drawn=figure,
        data=table.drop(columns="line"),
        legend={int(place): str(rows["setting"].iloc[0]) for place, rows in drawn},
        runs={int(place): question.lines[int(place)].ids for place, _ in drawn},
    )


def points_table(lines: Sequence[Line]) -> pd.DataFrame:
    """A row for each point that has both figures: medians over its runs, and whether it is on the frontier.

    On the frontier are points that no other beats in both, among those that keep their SLO and that no check spoils.
    """
    rows: list[dict[str, Any]] = []
    for place, line in enumerate(lines):
        for point in line.points:
            rate, tpot = point.figure(_RATE), point.figure(_TPOT)
            if not rate or not tpot:
                continue
            rows.append(
                {
                    "line": place,
                    "setting": line.label,
                    "load": point.load,
                    "load_unit": line.unit,
                    "runs": " ".join(run.id for run in point.runs),
                    "tokens_per_s_per_user": 1000 / tpot,
                    "output_tokens_per_s": rate,
                    "missed_slo": point.missed,
                    "doubtful": point.doubtful((_RATE, _TPOT)),
                    "errors": point.errors,
                }
            )
    table = pd.DataFrame(rows, columns=[*rows[0]] if rows else ["line"])
    kept = [place for place, row in enumerate(rows) if not row["missed_slo"] and not row["doubtful"]]
    users, rates = (
        [rows[place][key] for place in kept] for key in ("tokens_per_s_per_user", "output_tokens_per_s")
    )
    on = {kept[place] for place in frontier([-user for user in users], rates, higher_is_better=True)}
    table["on_frontier"] = [place in on for place in range(len(rows))]
    return table


def _draw_line(axes: "Axes", rows: pd.DataFrame, place: int) -> None:
    ordered = rows.sort_values("load", kind="stable")
    axes.plot(
        ordered["tokens_per_s_per_user"], ordered["output_tokens_per_s"],
        **run_style(place) | {"linewidth": 1.3}, zorder=2,
    )  # fmt: skip
    draw_marks(axes, ordered, "tokens_per_s_per_user", "output_tokens_per_s", place)


def _reading(question: Question, table: pd.DataFrame) -> str:
    units = {line.unit for line in question.lines}
    unit = " or ".join(sorted(units)) if len(units) > 1 else units.pop()
    words = [
        "Up is more tokens of the same machine, right is faster for each user. One point a load "
        f"({unit}, the number beside it), joined by increasing load."
    ]
    if table["on_frontier"].any():
        words.append("The broad band is the frontier: no point beats one on it in both.")
    else:
        words.append("There is no frontier: no point keeps the SLO with figures that every check passed.")
    return " ".join([*words, *marks_in_words(table)])
