"""The marks of points over loads, and what they say in words."""

from typing import TYPE_CHECKING

import pandas as pd

from harness.report.palette import INK, PAPER, run_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def hollow(rows: pd.DataFrame) -> "pd.Series[bool]":
    """Which rows to draw hollow, by columns `missed_slo` and `doubtful`."""
    return rows["missed_slo"].eq(True) | rows["doubtful"]


def draw_marks(axes: "Axes", rows: pd.DataFrame, x: str, y: str, series: int) -> None:
    """A circle a row, some of them `hollow`, crossed where requests failed (column `errors`)."""
    style = run_style(series) | {"linestyle": "none"}
    circle = style | {"markersize": 5.5, "markeredgewidth": 1.3, "zorder": 3}
    cross = style | {"markersize": 8, "color": INK, "markeredgewidth": 1.1, "zorder": 4}
    empty = hollow(rows)
    for chosen, shape, look in (
        (~empty, "o", circle),
        (empty, "o", circle | {"markerfacecolor": PAPER}),
        (rows["errors"] > 0, "x", cross),
    ):
        if chosen.any():  # a line of nothing would still take room, in a corner
            axes.plot(rows.loc[chosen, x], rows.loc[chosen, y], marker=shape, clip_on=False, **look)


def marks_in_words(rows: pd.DataFrame) -> list[str]:
    """A sentence for each kind of mark that is drawn."""
    words = []
    if hollow(rows).any():
        words.append(
            "Hollow: the SLO was missed, the run ended early, or a check failed that spoils these figures."
        )
    if (rows["errors"] > 0).any():
        words.append("Crossed: requests failed.")
    return words
