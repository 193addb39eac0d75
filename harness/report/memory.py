"""What memory is taken by: KV cache against the length of a request and against requests at once, with what the
model's geometry predicts, and the parts of each engine's peak."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from harness.core.geometry import ModelGeometry
from harness.core.metric_names import KV_USED_BYTES
from harness.metrics.kv_per_token import fitted, held_tokens
from harness.metrics.window import Window
from harness.records.paths import pick
from harness.records.reader import Run
from harness.report.axis import WIDE_RANGE, log_axis, whole_numbers
from harness.report.canvas import drawing
from harness.report.figure import Coloured, Figure
from harness.report.palette import INK, PALETTE, run_style
from harness.report.values import memory, percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MB = 1e6
_FEWEST_SAMPLES = 3
_LEAST_SPREAD = 1.25  # between the longest and the shortest: closer lengths draw one spot
_MOST_BARS = 24
_PARTS = (("weights", PALETTE[0]), ("KV cache", PALETTE[1]), ("overhead", PALETTE[6]))
_LONGEST_NAME = 60
_MOST_FITS = 6
_DASHED = (
    " Dashed: keys and values by the model's geometry, without rounding up to blocks and without scales."
)


def memory_figures(runs: Sequence[Coloured], labels: dict[str, str]) -> list[Figure]:
    """Those of the three that the runs have data for. labels: the group of each run, by its id."""
    held = _held(runs)
    figures = (against_length(runs, held), against_requests(runs, held), memory_parts(runs, labels))
    return [figure for figure in figures if figure is not None]


def predicted_bytes_per_token(run: Run) -> float | None:
    """Keys and values of a token by the model's geometry in the run's KV precision, scales left out.

    None in records older than the geometry, and for a precision that has no one size.
    """
    kept = pick(run.config, "backend.kv_dtype")
    quants = [pick(run.config, f"backend.kv.{key}") for key in ("quant", "value_quant")]
    keys = kept if quants[0] in (None, "none") else quants[0]
    values = keys if quants[1] is None else kept if quants[1] == "none" else quants[1]
    try:
        geometry = ModelGeometry(**run.fingerprint["geometry"])
        return (geometry.kv_bytes_per_token(keys) + geometry.kv_bytes_per_token(values)) / 2
    except (KeyError, TypeError):
        return None


def against_length(runs: Sequence[Coloured], held: pd.DataFrame) -> Figure | None:
    """KV used / requests against tokens held / requests, a point a sample, and the geometry's lines."""
    lengths = held["tokens"] / held["requests"]
    if len(held) < _FEWEST_SAMPLES or lengths.max() < _LEAST_SPREAD * lengths.min():
        return None
    table = held.assign(length=lengths, kv_bytes=held[KV_USED_BYTES] / held["requests"])
    figure, (axes,) = drawing()
    for series, points in table.groupby("series"):
        _points(axes, points["length"], points["kv_bytes"], int(series))
    edges = np.array([lengths.min(), lengths.max()])
    rates = _rates(run for _, run in runs if run.id in set(held["run"]))
    for rate in rates:
        _prediction(axes, edges, rate * edges, {"color": INK}, f"{memory(rate)} a token")
    if edges[1] > WIDE_RANGE * edges[0]:
        log_axis(axes, "x")
        log_axis(axes, "y")
    else:
        axes.set(xlim=(0, None), ylim=(0, None))
    axes.set(xlabel="tokens of a request, prompt and answer so far", ylabel="KV used of a request, MB")
    return Figure(
        name="kv-length",
        title="KV cache against length of context",
        reading="One point a sample in which all requests generated: what the engine says it uses, over the "
        f"requests.{_DASHED if rates else ''}{_fits(runs, held)}",
        drawn=figure,
        data=table.drop(columns=["series", "ns"]),
        series=sorted(int(series) for series in table["series"].unique()),
    )


def against_requests(runs: Sequence[Coloured], held: pd.DataFrame) -> Figure | None:
    """KV used against requests at once, and what their tokens are predicted to take."""
    if len(held) < _FEWEST_SAMPLES or held["requests"].nunique() < 2:
        return None
    figure, (axes,) = drawing()
    by_id = {run.id: run for _, run in runs}
    predicted = False
    for series, points in held.groupby("series"):
        _points(axes, points["requests"], points[KV_USED_BYTES], int(series))
        rate = predicted_bytes_per_token(by_id[points["run"].iloc[0]])
        if rate is not None:
            counts = np.array([0, points["requests"].max()])
            each = rate * float((points["tokens"] / points["requests"]).mean())
            _prediction(axes, counts, each * counts, run_style(int(series)))
            predicted = True
    whole_numbers(axes, "x")
    axes.set(xlabel="requests at once", ylabel="KV used, MB", xlim=(0, None), ylim=(0, None))
    return Figure(
        name="kv-requests",
        title="KV cache against concurrency",
        reading="One point a sample in which all requests generated."
        + (" Dashed: as many requests of their mean length, by the model's geometry." if predicted else ""),
        drawn=figure,
        data=held.drop(columns=["series", "ns"]),
        series=sorted(int(series) for series in held["series"].unique()),
    )


def memory_parts(runs: Sequence[Coloured], labels: dict[str, str]) -> Figure | None:
    """A bar a group: weights, KV cache and the rest of the peak, medians over its runs."""
    table = _parts(runs, labels)
    if table.empty:
        return None
    shown = table.head(_MOST_BARS)
    figure, (axes,) = drawing(height=0.9 + 0.5 * len(shown))
    places = np.arange(len(shown))
    left = np.zeros(len(shown))
    for name, colour in _PARTS:
        size = shown[name].clip(lower=0).to_numpy() / _MB
        axes.barh(places, size, left=left, height=0.42, color=colour, label=name)
        left += size
    for place, row in zip(places, shown.itertuples(), strict=True):
        words = f"{row.setting}: KV ({row.kv_in_peak}) {percent(row.kv_share)} of {memory(row.peak)}"
        axes.text(0, place - 0.27, words, fontsize=7.5, va="bottom", ha="left")
    axes.set(xlabel="MB at the peak", yticks=[], ylim=(len(shown) - 0.5, -0.75), xlim=(0, None))
    axes.grid(visible=False, axis="y")
    axes.legend(
        loc="upper center",
        bbox_to_anchor=(0.5, 1.0 + 0.32 / (0.9 + 0.5 * len(shown))),
        ncols=3,
        frameon=False,
    )
    more = f" The first {_MOST_BARS} of {len(table)} settings." if len(table) > _MOST_BARS else ""
    return Figure(
        name="memory-parts",
        title="What the peak consists of",
        reading="Weights as the engine says them, else by the files that it reads. "
        "KV (reserved): the whole pool, which is memory from the start. KV (used): the most that was in use, "
        "where the system gives memory only as it is touched. Overhead is what is left of the peak: activations, "
        f"libraries, copies that the engine makes of its weights.{more}",
        drawn=figure,
        data=table,
    )


def memory_words(runs: Sequence[Run]) -> str:
    """One sentence of a group's memory, medians over its runs; empty where nothing of it is known."""

    def middle(key: str) -> float | None:
        values = [value for run in runs if (value := pick(run.summary, f"memory.{key}")) is not None]
        return median(values) if values else None

    per_token, share = middle("kv_per_token_bytes"), middle("kv_share_of_memory")
    peak = middle("peak_gpu_bytes") or middle("peak_process_bytes")
    parts = []
    if (per_request := middle("kv_per_request_bytes")) is not None:
        parts.append(f"{memory(per_request)} of KV cache a request")
    if per_token is not None:
        predicted = predicted_bytes_per_token(runs[0])
        beside = f" (geometry {memory(predicted)})" if predicted else ""
        parts.append(f"{memory(per_token)} a token{beside}")
    if peak is not None:
        parts.append(
            f"{memory(peak)} at the peak" + (f", {percent(share)} of it KV" if share is not None else "")
        )
    return f"Memory: {'; '.join(parts)}." if parts else ""


def _points(axes: "Axes", places: "pd.Series[Any]", sizes: "pd.Series[Any]", series: int) -> None:
    style = run_style(series) | {"linestyle": "none", "marker": "o", "markersize": 4}
    axes.plot(places.to_numpy(), sizes.to_numpy() / _MB, **style)


def _prediction(
    axes: "Axes", places: np.ndarray, sizes: np.ndarray, style: dict[str, Any], words: str = ""
) -> None:
    """A dashed line; the words stand at its end."""
    axes.plot(places, sizes / _MB, **style | {"linestyle": (0, (4, 3)), "linewidth": 1})
    end = places[-1], sizes[-1] / _MB
    axes.annotate(
        words, end, xytext=(-6, 6), textcoords="offset points", ha="right", fontsize=7.5, color=style["color"]
    )


def _fits(runs: Sequence[Coloured], held: pd.DataFrame) -> str:
    """A sentence for each KV setting whose samples tell what a token takes."""
    settings: dict[str, list[Run]] = defaultdict(list)
    for _, run in runs:
        options = {
            key: pick(run.config, f"backend.{key}") for key in ("name", "kv_dtype", "kv", "eviction_keep")
        }
        settings[repr(options)].append(run)
    sentences = []
    for members in settings.values():
        found = fitted(held[held["run"].isin([run.id for run in members])]).bytes
        if found is not None:
            name = (
                f"{pick(members[0].config, 'backend.name')} ({pick(members[0].config, 'backend.kv_dtype')})"
            )
            interval = f"[{memory(found.low)}, {memory(found.high)}]"
            sentences.append(f" {name} takes {memory(found.value)} a token, 95 % interval {interval}.")
    return "".join(sentences[:_MOST_FITS])


def _rates(runs: Iterable[Run]) -> list[float]:
    rates = (predicted_bytes_per_token(run) for run in runs)
    return list(dict.fromkeys(rate for rate in rates if rate is not None))


def _held(runs: Sequence[Coloured]) -> pd.DataFrame:
    """Rows of `held_tokens` of every run, with its id and series."""
    tables = [
        pd.DataFrame(columns=["run", "series", "ns", "requests", "tokens", "block", "room", KV_USED_BYTES])
    ]
    for series, run in runs:
        if run.window and len(run.requests) and len(run.telemetry):
            table = held_tokens(run.requests, run.events, run.telemetry, Window.from_record(run.window))
            if len(table):
                tables.append(table.assign(run=run.id, series=series))
    return pd.concat(tables[1:], ignore_index=True) if len(tables) > 1 else tables[0]


def _parts(runs: Sequence[Coloured], labels: dict[str, str]) -> pd.DataFrame:
    grouped: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for _, run in runs:
        found = pick(run.summary, "memory") or {}
        if found.get("overhead_bytes") is None:
            continue
        peak = found["peak_gpu_bytes"] or found["peak_process_bytes"]
        kv = peak - found["weights_bytes"] - found["overhead_bytes"]
        row = {
            "weights": found["weights_bytes"],
            "KV cache": kv,
            "overhead": found["overhead_bytes"],
            "peak": peak,
        }
        grouped[labels[run.id]].append(row | {"kv_in_peak": found["kv_in_peak"]})
    rows = []
    for label, members in grouped.items():
        middle = {
            key: median(member[key] for member in members) for key in (*(name for name, _ in _PARTS), "peak")
        }
        name = label if len(label) <= _LONGEST_NAME else f"{label[: _LONGEST_NAME - 1]}…"
        rows.append(
            {"setting": name, **middle, "kv_share": middle["KV cache"] / middle["peak"]}
            | {"kv_in_peak": members[0]["kv_in_peak"]}
        )
    return pd.DataFrame(rows)
