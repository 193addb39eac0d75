"""The timeline of a run's requests: when each waited and when it streamed."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from harness.metrics.latency import measured, succeeded
from harness.metrics.window import NS_PER_S, Window
from harness.records.reader import Run
from harness.report.canvas import drawing, to_document
from harness.report.figure import Figure
from harness.report.palette import PALETTE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing
    from matplotlib.path import Path

MOST_REQUESTS = 2000
_INSTANTS = ("scheduled", "sent", "first", "last", "end")
_MOST_VECTOR_LINES = 160  # beyond, an image is smaller than the lines
WAITING, STREAMING, FAILED = 4, 0, 3  # colours of the palette
_PLACE = (0.145, 0.2, 0.84, 0.77)  # of the axes in the figure: left, bottom, width, height
_X_LABEL, _Y_LABEL = (0.5, -0.155), (-0.116, 0.5)  # beside numbers of four digits; in axes
_LEGEND = {WAITING: "waiting for the first token", STREAMING: "streaming", FAILED: "failed"}


class Sheet:
    """What timelines are drawn on, one after another: axes with their marks take longer to make than to fill."""

    def __init__(self) -> None:
        self._drawn: tuple[Drawing, Axes] | None = None

    def document(self, data: pd.DataFrame, name: str) -> str:
        """One line a row of `data` (columns of `_seconds`), as an SVG document with identifiers of `name`."""
        from matplotlib.patches import PathPatch

        figure, axes = self._cleared()
        width = float(np.clip(120 / len(data), 0.35, 5))
        as_image = len(data) > _MOST_VECTOR_LINES
        for place, strokes in _strokes(data):
            axes.add_artist(  # no patch: its limits would be looked for, at length
                PathPatch(
                    strokes, fill=False, edgecolor=PALETTE[place], linewidth=width, capstyle="butt",
                    rasterized=as_image,
                )
            )  # fmt: skip
        ended = data["last_s"].fillna(data["end_s"]).max()
        axes.set(ylim=(len(data), -1), xlim=(0, 1 if np.isnan(ended) else float(ended) * 1.01))
        return to_document(figure, name)

    def _cleared(self) -> "tuple[Drawing, Axes]":
        if self._drawn is None:
            figure, (axes,) = drawing(height=2.4)
            figure.set_layout_engine("none")  # all timelines have one layout: there may be many
            axes.set_position(_PLACE)
            axes.set(xlabel="seconds of the measured window", ylabel="request")
            axes.xaxis.set_label_coords(*_X_LABEL)
            axes.yaxis.set_label_coords(*_Y_LABEL)
            axes.locator_params("y", nbins=5)
            axes.grid(visible=False, axis="y")
            self._drawn = figure, axes
        for patch in list(self._drawn[1].patches):
            patch.remove()
        return self._drawn


def timeline(run: Run, name: str, label: str, sheet: Sheet) -> Figure | None:
    """One line a request, at most MOST_REQUESTS of them, evenly sampled. None where nothing was measured."""
    shown = run.requests[["phase", "index", "ok", *(f"{name}_ns" for name in _INSTANTS)]]
    rows = measured(shown).dropna(subset=["scheduled_ns"]).sort_values("scheduled_ns", kind="stable")
    if rows.empty or not run.window:
        return None
    total = len(rows)
    if total > MOST_REQUESTS:
        rows = rows.iloc[np.linspace(0, total - 1, MOST_REQUESTS).astype(int)]
    data = _seconds(rows, Window.from_record(run.window).start_ns)
    sampled = f"{MOST_REQUESTS} of {total} requests are drawn." if total > MOST_REQUESTS else ""
    return Figure(
        name=name,
        title=f"Every request: {label}",
        reading=sampled,
        drawn=None,  # there is one a run: their PNGs would take a quarter of a report's time
        document=sheet.document(data, name),
        data=data,
        legend=_LEGEND,
    )


def _strokes(data: pd.DataFrame) -> "Iterator[tuple[int, Path]]":
    """Colours of the palette, each with all its lines as one path, which draws fast."""
    from matplotlib.path import Path

    height = np.arange(len(data))
    finish = data["last_s"].fillna(data["end_s"])
    ok = data["ok"].to_numpy(dtype=bool)
    for start, end, chosen, place in (
        (data["scheduled_s"], data["first_s"].fillna(finish), np.ones(len(data), dtype=bool), WAITING),
        (data["first_s"], finish, ok, STREAMING),
        (data["first_s"].fillna(data["scheduled_s"]), finish, ~ok, FAILED),
    ):
        known = chosen & start.notna().to_numpy() & end.notna().to_numpy()
        points = np.stack([start[known], height[known], end[known], height[known]], axis=1).reshape(-1, 2)
        yield place, Path(points, np.tile([Path.MOVETO, Path.LINETO], int(known.sum())))


def _seconds(rows: pd.DataFrame, start_ns: int) -> pd.DataFrame:
    data = pd.DataFrame({"index": rows["index"].to_numpy(), "ok": succeeded(rows)})
    for name in _INSTANTS:
        instants = rows[f"{name}_ns"] - start_ns
        data[f"{name}_s"] = instants.to_numpy(dtype=float, na_value=np.nan) / NS_PER_S
    return data
