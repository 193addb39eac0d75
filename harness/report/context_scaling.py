"""The section of a report on what a longer context and more requests at once do: fits in words, and three figures."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from harness.compare.context_scaling import Batching, Growth, Study, studies
from harness.metrics.scaling import Estimate, PowerLaw
from harness.records.paths import pick
from harness.records.reader import Run
from harness.report.axis import log_axis
from harness.report.canvas import drawing
from harness.report.figure import Figure, FigureSection
from harness.report.memory import predicted_bytes_per_token
from harness.report.palette import INK, PALETTE
from harness.report.table import failed_checks
from harness.report.values import duration, listed, memory, number, signed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MB = 1e6
_SMALL = 8.5  # points, of a legend
_LINEAR = (0.9, 1.1)  # an exponent whose whole interval lies here is called linear
_THIN: dict[str, Any] = {"color": INK, "linestyle": (0, (4, 3)), "linewidth": 1}


def scaling_sections(runs: Sequence[Run]) -> list[FigureSection]:
    """One for each study among the runs: an engine and setting."""
    found = studies(runs)
    return [_section(study, number, len(found) > 1) for number, study in enumerate(found)]


def outside_studies(runs: Sequence[Run]) -> list[Run]:
    """The runs that are part of none: those of a study were asked different things, and are no rivals."""
    inside = {run.id for study in studies(runs) for run in study.runs}
    return [run for run in runs if run.id not in inside]


def scaling_headlines(runs: Sequence[Run]) -> list[str]:
    """The exponents and the gain of each study, in one sentence."""
    return [_headline(study) for study in studies(runs)]


def _headline(study: Study) -> str:
    found = []
    if study.growth is not None and study.growth.memory is not None:
        found.append(f"KV memory grows with context^{study.growth.memory.exponent.value:.2f}")
    if study.growth is not None and study.growth.ttft is not None:
        found.append(f"the time to first token grows with context^{study.growth.ttft.exponent.value:.2f}")
    if study.batching is not None and study.batching.gain is not None:
        count, gain = study.batching.gain
        found.append(
            f"continuous batching gives {number(gain)} times the tokens/s of one request after another at {count} "
            "at once"
        )
    return f"{pick(study.runs[0].config, 'backend.name')}: {listed(found)}."


def scaling_words(runs: Sequence[Run]) -> list[str]:
    """The same in words alone, for a terminal."""
    return [sentence for section in studies(runs) for sentence in _sentences(section)]


def _section(study: Study, position: int, several: bool) -> FigureSection:
    first = study.runs[0].config
    engine, dtype = pick(first, "backend.name") or "engine", pick(first, "backend.kv_dtype")
    named = f": {engine}, KV in {dtype}" if several and dtype else f": {engine}"
    suffix = f"-{position + 1}" if several else ""
    figures: list[Figure] = []
    if study.growth is not None:
        figures += [*_memory_figure(study.growth, suffix), _times_figure(study.growth, suffix)]
    if study.batching is not None:
        figures.append(_batching_figure(study.batching, suffix))
    title = f"What a longer context and more requests cost{named}"
    return FigureSection(f"scaling{suffix}", title, _sentences(study), figures)


def _sentences(study: Study) -> list[str]:
    sentences = [] if study.growth is None else _growth_words(study.growth)
    if study.batching is not None:
        sentences.append(_batching_words(study.batching))
    return [*sentences, *_doubts(study.runs)]


def _doubts(runs: Sequence[Run]) -> list[str]:
    """What spoils some of the runs, since a fit does not show it."""
    spoilt = [failed for run in runs if (failed := failed_checks(run))]
    if not spoilt:
        return []
    problems = listed(list(dict.fromkeys(problem for failed in spoilt for problem in failed)))
    return [f"{len(spoilt)} of these {len(runs)} runs failed a validity check: {problems}."]


def _growth_words(growth: Growth) -> list[str]:
    shortest, longest = growth.points[0], growth.points[-1]
    words = []
    if growth.memory is not None and growth.bytes_per_token is not None:
        exponent = growth.memory.exponent
        linear = _LINEAR[0] <= exponent.low and exponent.high <= _LINEAR[1]
        shape = ": in a straight line, not exponentially" if linear else ""
        slope = growth.bytes_per_token
        words.append(
            f"KV memory grows with context^{_power(exponent)}{shape}. A token takes {memory(slope.value)} "
            f"[{memory(slope.low)}, {memory(slope.high)}]{_against(slope, longest.run)}."
        )
    else:
        words.append(
            "How KV memory grows is not known: the engine does not tell it, too few samples caught it, or "
            "requests shared entries of a prefix cache."
        )
    if growth.ttft is not None:
        words.append(
            f"Time to first token grows with context^{_power(growth.ttft.exponent)}: {duration(shortest.ttft_ms)} at "
            f"{shortest.tokens:,} tokens, {duration(longest.ttft_ms)} at {longest.tokens:,}. {_prefill_words(growth)}"
        )
    if growth.rate is not None:
        words.append(
            f"One request after another gives {number(shortest.tokens_per_s)} output tokens/s at "
            f"{shortest.tokens:,} tokens and {number(longest.tokens_per_s)} at {longest.tokens:,}: "
            f"context^{_power(growth.rate.exponent)}."
        )
    if shortest.joules_per_token is not None and longest.joules_per_token is not None:
        words.append(
            f"An output token takes {number(shortest.joules_per_token)} J at {shortest.tokens:,} tokens and "
            f"{number(longest.joules_per_token)} J at {longest.tokens:,}."
        )
    return words


def _against(slope: Estimate, run: Run) -> str:
    predicted = predicted_bytes_per_token(run)
    if not predicted:
        return ""
    return (
        f"; the model's geometry gives {memory(predicted)} ({signed(100 * (slope.value / predicted - 1))} %)"
    )


def _prefill_words(growth: Growth) -> str:
    found = growth.prefill
    if found is None:
        return ""
    linear, quadratic = found.linear, found.quadratic
    parts = (
        f"Of n tokens, its parts are {number(1000 * linear.value)} µs [{number(1000 * linear.low)}, "
        f"{number(1000 * linear.high)}] · n and {number(1e6 * quadratic.value)} ns [{number(1e6 * quadratic.low)}, "
        f"{number(1e6 * quadratic.high)}] · n²"
    )
    if quadratic.low <= 0 or found.even is None:
        return f"{parts}: a quadratic part cannot be told from none in these runs."
    longest = growth.points[-1].tokens
    beyond = " (longer than any of these)" if found.even > longest else ""
    return f"{parts}: attention's quadratic part is the larger one from {found.even:,.0f} tokens on{beyond}."


def _batching_words(batching: Batching) -> str:
    if batching.gain is None:
        return ""
    count, gain = batching.gain
    together = next(point for point in batching.together if point.concurrency == count)
    in_turn = next(point for point in batching.in_turn if point.concurrency == count)
    return (
        f"With {count} requests of {batching.tokens:,} tokens at once, continuous batching gives {number(gain)} "
        f"times the tokens/s of one request after another ({number(together.tokens_per_s)} against "
        f"{number(in_turn.tokens_per_s)}), and the first token after {duration(together.ttft_ms)} instead of "
        f"{duration(in_turn.ttft_ms)}."
    )


def _power(exponent: Estimate) -> str:
    return f"{exponent.value:.2f} [{exponent.low:.2f}, {exponent.high:.2f}]"


def _memory_figure(growth: Growth, suffix: str) -> list[Figure]:
    known = [point for point in growth.points if point.held is not None and point.kv_bytes is not None]
    if not known:
        return []
    table = pd.DataFrame({"tokens": [p.held for p in known], "kv_bytes": [p.kv_bytes for p in known]})
    figure, (axes,) = drawing()
    _loglog(axes)
    axes.plot(table["tokens"], table["kv_bytes"] / _MB, "o", color=PALETTE[0], markersize=5, label="measured")
    edges = np.array([table["tokens"].min(), table["tokens"].max()])
    if predicted := predicted_bytes_per_token(growth.points[-1].run):
        axes.plot(edges, predicted * edges / _MB, **_THIN, label=f"geometry, {memory(predicted)} a token")
    axes.set(xlabel="tokens that the request holds", ylabel="KV cache, MB")
    axes.legend(frameon=False, loc="upper left", fontsize=_SMALL)
    name = f"scaling-memory{suffix}"
    reading = (
        "One point a run, one request at a time: means over the samples in which it generated. Dashed: keys and "
        "values by the model's geometry, without rounding up to blocks and without scales."
    )
    return [Figure(name, "KV memory against context length", reading, figure, table)]


def _times_figure(growth: Growth, suffix: str) -> Figure:
    table = pd.DataFrame(
        {
            "tokens": [point.tokens for point in growth.points],
            "ttft_ms": [point.ttft_ms for point in growth.points],
            "output_tokens_per_s": [point.tokens_per_s for point in growth.points],
            "joules_per_output_token": [point.joules_per_token for point in growth.points],
        }
    )
    figure, (upper, lower) = drawing(panels=2, height=4.4)
    for axes in (upper, lower):
        _loglog(axes)
    upper.plot(table["tokens"], table["ttft_ms"] / 1000, "o", color=PALETTE[0], markersize=5)
    lower.plot(table["tokens"], table["output_tokens_per_s"], "o", color=PALETTE[0], markersize=5)
    places = np.geomspace(table["tokens"].min(), table["tokens"].max(), 60)
    if growth.prefill is not None:
        upper.plot(
            places, [growth.prefill.at(place) / 1000 for place in places], color=PALETTE[0], linewidth=1.2,
            label="linear and quadratic part",
        )  # fmt: skip
        upper.plot(places, growth.prefill.linear.value * places / 1000, **_THIN, label="linear part alone")
        upper.legend(frameon=False, loc="upper left", fontsize=_SMALL)
    _law(lower, places, growth.rate)
    upper.set(ylabel="TTFT from send, s")
    lower.set(ylabel="output tokens/s", xlabel="tokens of the prompt")
    name = f"scaling-times{suffix}"
    return Figure(
        name=name,
        title="First token and throughput against context length",
        reading="One point a run, one request after another. Where the curve leaves the dashed line, attention over "
        "the whole prompt costs more than the rest.",
        drawn=figure,
        data=table,
    )


def _batching_figure(batching: Batching, suffix: str) -> Figure:
    figure, (axes,) = drawing()
    frames = []
    for colour, (label, points) in zip(
        (PALETTE[0], PALETTE[1]),
        (("continuous batching", batching.together), ("one after another", batching.in_turn)),
        strict=True,
    ):
        frame = pd.DataFrame([asdict(point) for point in points]).assign(computed=label)
        axes.plot(
            frame["concurrency"],
            frame["tokens_per_s"],
            "o-",
            color=colour,
            markersize=5,
            linewidth=1.4,
            label=label,
        )
        frames.append(frame)
    axes.set_xticks(sorted({point.concurrency for point in (*batching.together, *batching.in_turn)}))
    axes.set(xlabel="requests at once", ylabel="output tokens/s", xlim=(0, None), ylim=(0, None))
    axes.legend(frameon=False, loc="best", fontsize=_SMALL)
    name = f"scaling-batching{suffix}"
    return Figure(
        name=name,
        title="Throughput against concurrency",
        reading=f"Prompts of {batching.tokens:,} tokens. As many requests are sent at once in both; the engine "
        "computes all of them together, or one and lets the others wait.",
        drawn=figure,
        data=pd.concat(frames, ignore_index=True),
    )


def _law(axes: "Axes", places: np.ndarray, law: PowerLaw | None) -> None:
    if law is not None:
        axes.plot(places, [law.at(place) for place in places], color=PALETTE[0], linewidth=1.2)


def _loglog(axes: "Axes") -> None:
    log_axis(axes, "x", doubling=True)
    log_axis(axes, "y")
