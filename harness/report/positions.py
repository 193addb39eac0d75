"""Perplexity against the length of the context: where in a text a setting of the KV cache begins to cost."""

from collections.abc import Sequence

import pandas as pd

from harness.records.paths import pick
from harness.records.reader import Run
from harness.report.canvas import drawing
from harness.report.figure import Coloured, Figure
from harness.report.palette import run_style

_FEWEST_PARTS = 2


def perplexity_by_position(runs: Sequence[Coloured]) -> Figure | None:
    """A line for each series that measured perplexity in windows of more than one part; its first run's."""
    first: dict[int, Run] = {}
    for series, run in runs:
        if len(pick(run.summary, "quality.perplexity_by_position") or []) >= _FEWEST_PARTS:
            first.setdefault(series, run)
    if not first:
        return None
    figure, (axes,) = drawing()
    data = []
    for series, run in first.items():
        table = pd.DataFrame(run.summary["quality"]["perplexity_by_position"])
        table.insert(0, "run", run.id)
        axes.plot((table["from"] + table["to"]) / 2, table["perplexity"], **run_style(series))
        data.append(table)
    axes.set(xlabel="tokens of context", ylabel="perplexity", xlim=(0, None))
    return Figure(
        name="positions",
        title="Perplexity by length of context",
        reading="Lower is better, and more context should help. Where a line leaves those of other settings, its KV "
        "cache has lost what was needed.",
        drawn=figure,
        data=pd.concat(data, ignore_index=True),
        series=sorted(first),
    )
