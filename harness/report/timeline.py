"""The timeline of a run's requests: when each waited and when it streamed."""

import numpy as np
import pandas as pd

from harness.metrics.latency import measured, succeeded
from harness.metrics.window import NS_PER_S, Window
from harness.records.reader import Run
from harness.report.canvas import drawing
from harness.report.figure import Figure
from harness.report.palette import PALETTE

MOST_REQUESTS = 2000
_MOST_VECTOR_LINES = 160  # beyond, an image is smaller than the lines
WAITING, STREAMING, FAILED = 4, 0, 3  # colours of the palette
_PLACE = (0.145, 0.2, 0.84, 0.77)  # of the axes in the figure: left, bottom, width, height
_LEGEND = {WAITING: "waiting for the first token", STREAMING: "streaming", FAILED: "failed"}


def timeline(run: Run, name: str, label: str) -> Figure | None:
    """One line a request, at most MOST_REQUESTS of them, evenly sampled. None where nothing was measured."""
    rows = measured(run.requests).dropna(subset=["scheduled_ns"]).sort_values("scheduled_ns", kind="stable")
    if rows.empty or not run.window:
        return None
    total = len(rows)
    if total > MOST_REQUESTS:
        rows = rows.iloc[np.linspace(0, total - 1, MOST_REQUESTS).astype(int)]
    data = _seconds(rows, Window.from_record(run.window).start_ns)
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    figure, (axes,) = drawing(height=2.4)
    figure.set_layout_engine("none")  # all timelines have one layout: there may be many
    axes.set_position(_PLACE)
    height = np.arange(len(data))
    width = float(np.clip(120 / len(data), 0.35, 5))
    as_image = len(data) > _MOST_VECTOR_LINES
    finish = data["last_s"].fillna(data["end_s"])
    waited_to = data["first_s"].fillna(finish)
    ok = data["ok"].to_numpy(dtype=bool)
    for start, end, chosen, place in (
        (data["scheduled_s"], waited_to, np.ones(len(data), dtype=bool), WAITING),
        (data["first_s"], finish, ok, STREAMING),
        (data["first_s"].fillna(data["scheduled_s"]), finish, ~ok, FAILED),
    ):
        known = chosen & start.notna().to_numpy() & end.notna().to_numpy()
        points = np.stack([start[known], height[known], end[known], height[known]], axis=1).reshape(-1, 2)
        strokes = Path(points, np.tile([Path.MOVETO, Path.LINETO], int(known.sum())))  # one path draws fast
        axes.add_artist(  # no patch: its limits would be looked for, at length

            PathPatch(
                strokes, fill=False, edgecolor=PALETTE[place], linewidth=width, capstyle="butt",
                rasterized=as_image,
            )
        )  # fmt: skip
    axes.set(xlabel="seconds of the measured window", ylabel="request", ylim=(len(data), -1))
    axes.set_xlim(0, float(np.nanmax(finish)) * 1.01 if finish.notna().any() else 1)
    axes.grid(visible=False, axis="y")
    sampled = f" {MOST_REQUESTS} of {total} requests are drawn." if total > MOST_REQUESTS else ""
    return Figure(
        name=name,
        title=f"Every request: {label}",
        reading=sampled.strip(),
        drawn=figure,
        data=data,
        legend=_LEGEND,
        has_png=False,  # there is one a run: their PNGs would take a quarter of a report's time
    )


def _seconds(rows: pd.DataFrame, start_ns: int) -> pd.DataFrame:
    data = pd.DataFrame({"index": rows["index"].to_numpy(), "ok": succeeded(rows)})
    for name in ("scheduled", "sent", "first", "last", "end"):
        instants = rows[f"{name}_ns"] - start_ns
        data[f"{name}_s"] = instants.to_numpy(dtype=float, na_value=np.nan) / NS_PER_S
    return data
