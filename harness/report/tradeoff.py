"""How much of the past must stay, drawn and in words: answers, perplexity, first token and cost by what is kept."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

import pandas as pd

from harness.compare.advice import Advice
from harness.compare.quality import above_chance
from harness.compare.settings import COST
from harness.compare.tradeoff import Kept, Tradeoff, tradeoffs
from harness.metrics.quality_figures import QUALITY_FIGURES
from harness.records.paths import pick
from harness.report.advice_words import risk, share_words
from harness.report.canvas import drawing
from harness.report.figure import Figure, FigureSection
from harness.report.palette import INK, series_style
from harness.report.values import listed, memory, percent

_KV = "memory.kv_per_request_bytes"


@dataclass(frozen=True, slots=True)
class _Panel:
    """A figure by what is kept. value: of a setting, None where it has none."""

    label: str
    value: Callable[[Kept], float | None]


def tradeoff_sections(advised: Sequence[Advice]) -> list[FigureSection]:
    """One for each engine and load that kept different shares of the past."""
    found = [one for advice in advised for one in tradeoffs(advice)]
    return [_section(one, f"-{place + 1}" if len(found) > 1 else "") for place, one in enumerate(found)]


def _section(found: Tradeoff, suffix: str) -> FigureSection:
    title = f"How much of the past must stay: {found.advice.asked.workload} on {found.engine}"
    return FigureSection(f"tradeoff{suffix}", title, _sentences(found), [_figure(found, f"tradeoff{suffix}")])


def _sentences(found: Tradeoff) -> list[str]:
    best = found.best
    sentences = [_recommended(found, best)]
    within = [one for one in found.all if one.setting.eligible and one.setting.judged and _median(one, _KV)]
    if within:
        least = min(within, key=lambda one: _median(one, _KV) or 0.0)
        if least is not best:
            sentences.append(
                f"The least memory {_surely(least)}within the accepted loss: {_named(least)}, "
                f"{memory(_median(least, _KV))} a request instead of {memory(_median(found.exact, _KV))}."
            )
    for method, points in found.methods.items():
        if points[-1].share < 1:
            sentences.append(f"{method}: {_enough(points)}.")
    return sentences


def _recommended(found: Tradeoff, best: Kept | None) -> str:
    if best is None:
        return "No setting may be taken here, not even the one that keeps everything; see above why."
    accepted = "the cheapest" if found.advice.by == COST else "the fastest"
    if best is found.exact:
        return f"Keep everything: it is {accepted} within the accepted loss."
    quality = [risk(one) for one in best.setting.losses]
    saving = best.setting.saving
    parts = [
        f"{share_words(saving.share)} {'saved' if saving.share >= 0 else 'saved, so it costs more'}"
        if saving
        else "",
        f"{memory(_median(best, _KV))} of KV a request instead of {memory(_median(found.exact, _KV))}",
        *quality,
    ]
    told = "; ".join(part for part in parts if part)
    return f"Take {_named(best)}, {accepted} within the accepted loss: {told}."


def _enough(points: Sequence[Kept]) -> str:
    """The least share that is within the loss while all larger ones are too. points: by decreasing share.

    Only those of which a loss is known count: what could not show it says nothing for or against a share.
    """
    known = [one for one in points if any(loss.telling for loss in one.setting.losses)]
    if not known:
        return f"what it loses at {listed([percent(one.share) for one in points])} is not known"
    tried = listed([percent(one.share) for one in known])
    enough: Kept | None = None
    for one in known:
        if one.setting.lost:
            break
        enough = one
    if enough is None:
        sure = any(loss.verdict == "loses" for loss in known[0].setting.lost)
        return f"even {percent(known[0].share)} of the past {'' if sure else 'likely '}loses too much"
    return f"{percent(enough.share)} of the past is {_surely(enough)}enough (tried: {tried})"


def _surely(one: Kept) -> str:
    """ "likely " unless every loss that was measured is surely within what is accepted."""
    return "" if all(loss.verdict == "safe" for loss in one.setting.losses) else "likely "


def _figure(found: Tradeoff, name: str) -> Figure:
    panels = [panel for panel in _panels(found) if panel.value(found.exact) is not None]
    figure, axes = drawing(panels=len(panels), height=1.3 + 1.7 * len(panels))
    table = []
    for axis, panel in zip(axes, panels, strict=True):
        exact = panel.value(found.exact)
        if exact is None:
            continue
        axis.axhline(exact, color=INK, linewidth=0.8, linestyle=(0, (1, 2)))
        for place, points in enumerate(found.methods.values()):
            known = [(one, value) for one in points if (value := panel.value(one)) is not None]
            shares, values = [100 * one.share for one, _ in known], [value for _, value in known]
            style = series_style(place)
            axis.plot(shares, values, **style)
            filled = [style["color"] if one.setting.eligible else "none" for one, _ in known]
            axis.scatter(shares, values, s=22, c=filled, edgecolors=style["color"], zorder=3)
            table += [_row(panel, one, value) for one, value in known]
        table.append(_row(panel, found.exact, exact))
        axis.set_ylabel(panel.label)
        axis.margins(x=0.05, y=0.12)
    axes[-1].set_xlabel("share of the past that stays, %")
    return Figure(
        name=name,
        title="By the share of the past that stays",
        reading="Dotted: everything kept as computed. A hollow point loses more quality than is accepted, or misses "
        "the SLO. Where a line leaves the dotted one, what was dropped was needed.",
        drawn=figure,
        data=pd.DataFrame(table, columns=["figure", "method", "share", "value", "may_be_taken"]),
        legend=dict(enumerate(found.methods)),
    )


def _panels(found: Tradeoff) -> list[_Panel]:
    """Answers are of the first task in which keeping everything is above chance; without a price, throughput."""
    measured = [one for one in _ANSWERS if _median(found.exact, one[0]) is not None]
    answers = next((one for one in measured if _tells(found.exact, one[0])), (measured or _ANSWERS)[0])
    return [
        _Panel(answers[1], lambda one: _percent(_median(one, answers[0]))),
        _Panel("perplexity", lambda one: _median(one, "quality.perplexity")),
        _Panel("TTFT p50, ms", lambda one: _median(one, "ttft_ms.p50")),
        _Panel(f"{found.advice.currency}/M tokens", _cost)
        if found.advice.by == COST
        else _Panel("tokens/s", lambda one: _median(one, "output_tokens_per_s")),
        _Panel("KV a request, MB", lambda one: _megabytes(_median(one, _KV))),
    ]


_ANSWERS = (
    ("quality.rag", "answers found, %"),
    ("quality.rag_options", "right options, %"),
    ("quality.recall", "facts recalled, %"),
)


def _tells(exact: Kept, path: str) -> bool:
    figure = next(figure for figure in QUALITY_FIGURES if figure.path == path)
    return any(above_chance(run, figure) for run in exact.setting.runs)


def _cost(one: Kept) -> float | None:
    figure = one.setting.cost.get(COST)
    return None if figure is None else figure.middle


def _median(one: Kept, path: str) -> float | None:
    values = [value for run in one.setting.runs if (value := pick(run.summary, path)) is not None]
    return float(median(values)) if values else None


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _megabytes(count: float | None) -> float | None:
    return None if count is None else count / 1e6


def _row(panel: _Panel, one: Kept, value: float) -> tuple[str, str, float, float, bool]:
    return panel.label, one.method, one.share, value, one.setting.eligible


def _named(one: Kept) -> str:
    return one.method if one.share == 1 else f"{one.method} with {percent(one.share)} of the past"
