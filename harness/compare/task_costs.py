"""What a KV or weight setting costs in quality, by what people use a model for.

A row is a setting of one engine: its runs of any workload. Each figure is compared with the baseline of the run that
has it (`harness.compare.baselines`), and each class of work is judged by the figures that speak of it: chat by the
distributions of the next token, RAG by planted answers, summarization by planted facts and perplexity, reasoning by
its chains.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from harness.compare.baselines import baseline_of, same_load, weights_baseline_of
from harness.compare.divergence import (
    DIVERGENCE,
    continued_alike,
    divergence_comparable,
    divergence_limit,
    divergence_loss,
)
from harness.compare.losses import worst_of
from harness.compare.quality import QualityLoss, comparable, loss
from harness.compare.same_model import Agreement, agreement
from harness.compare.seen import NOT_SEEN, UNTOLD
from harness.metrics.quality_figures import QUALITY_FIGURES, QualityFigure
from harness.records.paths import pick
from harness.records.reader import Run

CLASSES: Mapping[str, tuple[str, ...]] = {
    "chat": (),
    "rag": ("rag", "recall"),
    "summarization": ("summary", "perplexity"),
    "reasoning": ("reasoning",),
}
Limits = Mapping[str, float | None]
_GREEDY = "quality.greedy_ids"


@dataclass(frozen=True, slots=True)
class Cost:
    """One figure of a setting against its baseline.

    lost: how much worse, negative where better; interval: of it, 95 %, None where it could not be had. unit: "points"
    (share of right answers), "relative" (perplexity) or "nats". verdict: as in `harness.compare.quality`.
    limit: the loss that is accepted. detectable: the smallest loss that these data could tell from none. most: the
    largest that they do not exclude. why: the figure cannot show it ("not seen"), else "".
    """

    label: str
    baseline: float | None
    candidate: float | None
    lost: float
    interval: tuple[float, float] | None
    unit: str
    verdict: str
    limit: float
    detectable: float
    most: float
    items: int
    why: str = ""


@dataclass(frozen=True, slots=True)
class ClassCost:
    """What a setting costs in one class of work. verdict: safe, loses, inconclusive, uninformative or not seen.

    agreement: of greedy continuations with the baseline's, which informs and decides nothing.
    """

    verdict: str
    costs: tuple[Cost, ...]
    agreement: Agreement | None = None


@dataclass(frozen=True, slots=True)
class SettingCost:
    """A row. axis: "kv" or "weights", what differs from the baseline. classes: only those with a figure.

    kv_memory, throughput: of the setting by the baseline's, median over its runs; None where not measured.
    """

    label: str
    baseline: str
    axis: str
    classes: Mapping[str, ClassCost]
    kv_memory: float | None
    throughput: float | None


_Baseline = Callable[[Run, Sequence[Run]], Run | None]
_Alike = Callable[[Run, Run], bool]  # a baseline and a run
_Find = Callable[[Run, _Alike], Run | None]
_BASELINES: Mapping[str, _Baseline] = {
    "kv": baseline_of,
    "weights": weights_baseline_of,
}


def setting_costs(runs: Sequence[Run], labels: Mapping[str, str], limits: Limits) -> list[SettingCost]:
    """A row for each setting that has a baseline among `runs`; labels: setting by run id, without its workload.

    limits: the accepted loss by figure, a share of 1; None for any.

    Of several runs of one setting (repeats, seeds) the one over the most items is judged, of equally long ones the
    worst, as the advice does. Runs that are not complete give nothing.
    """
    complete = [run for run in runs if run.status == "complete"]
    rows = []
    for axis, find in _BASELINES.items():
        settings: dict[str, list[Run]] = {}
        for run in complete:
            if find(run, complete) is not None:
                settings.setdefault(labels[run.id], []).append(run)
        for label, members in settings.items():
            among = _among(find, complete)
            classes = {
                name: found
                for name, tasks in CLASSES.items()
                if (found := _class_cost(members, among, tasks, limits))
            }
            if classes:
                bases = [base for run in members if (base := find(run, complete)) is not None]
                rows.append(_row(label, labels[bases[0].id], axis, classes, members, among))
    return rows


def _among(find: _Baseline, complete: Sequence[Run]) -> _Find:
    """The baseline of a run among those that can be held against it in one figure."""

    def found(run: Run, alike: _Alike) -> Run | None:
        return find(run, [other for other in complete if other is run or alike(other, run)])

    return found


def _worst(
    runs: Sequence[Run], find: _Find, alike: _Alike, compare: Callable[[Run, Run], QualityLoss | None]
) -> QualityLoss | None:
    """Of the runs that can be compared, the one that `losses.worst_of` picks."""
    pairs = ((find(run, alike), run) for run in runs)
    found = [(one, base) for base, run in pairs if base is not None and (one := compare(base, run))]
    return worst_of(found)[0] if found else None


def _row(
    label: str,
    baseline: str,
    axis: str,
    classes: Mapping[str, ClassCost],
    runs: Sequence[Run],
    find: _Find,
) -> SettingCost:
    memory = _ratio(runs, find, "memory.kv_per_request_bytes")
    return SettingCost(label, baseline, axis, classes, memory, _ratio(runs, find, "output_tokens_per_s"))


def _class_cost(runs: Sequence[Run], find: _Find, tasks: Sequence[str], limits: Limits) -> ClassCost | None:
    if not tasks:
        return _chat(runs, find, limits)
    figures = [figure for figure in QUALITY_FIGURES if figure.task in tasks]
    costs = tuple(cost for figure in figures if (cost := _cost(runs, find, figure, limits)))
    return ClassCost(_together([cost.verdict for cost in costs]), costs) if costs else None


def _limit(limits: Limits, name: str) -> float:
    value = limits.get(name)
    return math.inf if value is None else value


def _cost(runs: Sequence[Run], find: _Find, figure: QualityFigure, limits: Limits) -> Cost | None:
    name = figure.path.removeprefix("quality.")
    limit = _limit(limits, name if name in limits else figure.task)
    found = _worst(
        runs,
        find,
        lambda base, run: comparable(base, run, figure),
        lambda base, run: loss(base, run, figure, limit),
    )
    return None if found is None else _told(found)


def _told(found: QualityLoss) -> Cost:
    figure = found.figure
    low, high = found.interval
    nats = figure is DIVERGENCE
    known = not nats or math.isfinite(high)
    return Cost(
        label=figure.label,
        baseline=None if nats else found.baseline,
        candidate=None if nats else found.candidate,
        lost=found.lost,
        interval=((-high, -low) if figure.higher_is_better else (low, high)) if known else None,
        unit="nats" if nats else "relative" if figure.chance is None else "points",
        verdict=found.verdict,
        limit=found.limit,
        detectable=found.detectable,
        most=found.most_lost,
        items=found.items,
        why=found.why,
    )


def _chat(runs: Sequence[Run], find: _Find, limits: Limits) -> ClassCost | None:
    limit = divergence_limit(limits)
    apart = _worst(runs, find, divergence_comparable, lambda base, run: divergence_loss(base, run, limit))
    together = _agreement(runs, find)
    if apart is None:
        return None if together is None else ClassCost("inconclusive", (), together)
    return ClassCost(apart.verdict, (_told(apart),), together)


def _agreement(runs: Sequence[Run], find: _Find) -> Agreement | None:
    """Of the first run that continued the same prompts as its baseline: it informs and decides nothing."""
    for run in runs:
        base = find(run, continued_alike)
        ours, theirs = pick(run.summary, _GREEDY), pick(base.summary, _GREEDY) if base else None
        if ours and theirs:
            return agreement(ours, theirs)
    return None


def _together(verdicts: Sequence[str]) -> str:
    """Of the figures of one class: a loss in one is a loss; safe takes all that say anything."""
    telling = [word for word in verdicts if word not in UNTOLD]
    if not telling:
        return NOT_SEEN if NOT_SEEN in verdicts else "uninformative"
    return next((word for word in ("loses", "inconclusive") if word in telling), "safe")


def _ratio(runs: Sequence[Run], find: _Find, path: str) -> float | None:
    """Median over the runs, each by a baseline that has the figure under the same load on the same machine."""

    def alike(other: Run, run: Run) -> bool:
        return same_load(other, run) and bool(pick(other.summary, path))

    ratios = []
    for run in runs:
        ours, base = pick(run.summary, path), find(run, alike)
        if ours is not None and base is not None:
            ratios.append(ours / pick(base.summary, path))
    return median(ratios) if ratios else None
