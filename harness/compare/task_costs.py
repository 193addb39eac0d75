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

from harness.compare.baselines import baseline_of, weights_baseline_of
from harness.compare.distributions import Distance, distance
from harness.compare.quality import loss, verdict_on
from harness.compare.same_model import Agreement, agreement
from harness.compare.seen import NOT_SEEN, UNTOLD
from harness.metrics.quality_figures import QUALITY_FIGURES, QualityFigure
from harness.records.paths import pick
from harness.records.reader import Run

# A lower bound of a divergence is taken for the whole of it only where so much of the probability is told apart.
_TOLD_ENOUGH = 0.75
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
    told: float | None = None


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


_BASELINES: Mapping[str, Callable[[Run, Sequence[Run]], Run | None]] = {
    "kv": baseline_of,
    "weights": weights_baseline_of,
}


def divergence_limit(limits: Limits) -> float:
    """Accepted nats a token: what the baseline writes then has as much more perplexity as is accepted of a text."""
    return math.log1p(_limit(limits, "perplexity"))


def setting_costs(runs: Sequence[Run], labels: Mapping[str, str], limits: Limits) -> list[SettingCost]:
    """A row for each setting that has a baseline among `runs`; labels: setting by run id, without its workload.

    limits: the accepted loss by figure, a share of 1; None for any.

    Of several runs of one setting and workload (repeats, seeds) the first is judged: quality hardly depends on the
    repeat. Runs that are not complete give nothing.
    """
    rows = []
    for axis, find in _BASELINES.items():
        pairs: dict[str, list[tuple[Run, Run]]] = {}
        for run in runs:
            baseline = find(run, runs) if run.status == "complete" else None
            if baseline is not None:
                pairs.setdefault(labels[run.id], []).append((baseline, run))
        for label, members in pairs.items():
            classes = {
                name: found
                for name, tasks in CLASSES.items()
                if (found := _class_cost(members, tasks, limits))
            }
            if classes:
                rows.append(_row(label, labels[members[0][0].id], axis, classes, members))
    return rows


def _row(
    label: str, baseline: str, axis: str, classes: Mapping[str, ClassCost], pairs: Sequence[tuple[Run, Run]]
) -> SettingCost:
    memory = _ratio(pairs, "memory.kv_per_request_bytes")
    return SettingCost(label, baseline, axis, classes, memory, _ratio(pairs, "output_tokens_per_s"))


def _class_cost(pairs: Sequence[tuple[Run, Run]], tasks: Sequence[str], limits: Limits) -> ClassCost | None:
    if not tasks:
        return _chat(pairs, divergence_limit(limits))
    figures = [figure for figure in QUALITY_FIGURES if figure.task in tasks]
    costs = tuple(cost for figure in figures if (cost := _cost(pairs, figure, limits)))
    return ClassCost(_together([cost.verdict for cost in costs]), costs) if costs else None


def _limit(limits: Limits, name: str) -> float:
    value = limits.get(name)
    return math.inf if value is None else value


def _cost(pairs: Sequence[tuple[Run, Run]], figure: QualityFigure, limits: Limits) -> Cost | None:
    name = figure.path.removeprefix("quality.")
    limit = _limit(limits, name if name in limits else figure.task)
    found = next((one for pair in pairs if (one := loss(*pair, figure, limit))), None)
    if found is None:
        return None
    low, high = found.interval
    return Cost(
        label=figure.label,
        baseline=found.baseline,
        candidate=found.candidate,
        lost=found.lost,
        interval=(-high, -low) if figure.higher_is_better else (low, high),
        unit="relative" if figure.chance is None else "points",
        verdict=found.verdict,
        limit=limit,
        detectable=found.detectable,
        most=found.most_lost,
        items=found.items,
        why=found.why,
    )


def _chat(pairs: Sequence[tuple[Run, Run]], limit: float) -> ClassCost | None:
    apart = next((far for pair in pairs if (far := distance(*(run.next_tokens for run in pair)))), None)
    together = next((agreed for pair in pairs if (agreed := _agreement(*pair))), None)
    if apart is None:
        return None if together is None else ClassCost("inconclusive", (), together)
    cost = _divergence(apart, limit)
    return ClassCost(cost.verdict, (cost,), together, apart.told)


def _divergence(apart: Distance, limit: float) -> Cost:
    word = "inconclusive" if apart.interval is None else verdict_on(apart.interval, limit)
    # No difference at all means that nothing was read from the cache that differs: a text within one pass.
    if word == "safe" and (apart.told < _TOLD_ENOUGH or apart.nats == 0):
        word = "inconclusive"
    most = apart.interval[1] if apart.interval else float("inf")
    return Cost(
        label="KL divergence",
        baseline=None,
        candidate=None,
        lost=apart.nats,
        interval=apart.interval,
        unit="nats",
        verdict=word,
        limit=limit,
        detectable=most - apart.nats,
        most=most,
        items=apart.positions,
    )


def _agreement(baseline: Run, candidate: Run) -> Agreement | None:
    theirs, ours = (pick(run.summary, _GREEDY) for run in (baseline, candidate))
    return agreement(ours, theirs) if ours and theirs else None


def _together(verdicts: Sequence[str]) -> str:
    """Of the figures of one class: a loss in one is a loss; safe takes all that say anything."""
    telling = [word for word in verdicts if word not in UNTOLD]
    if not telling:
        return NOT_SEEN if NOT_SEEN in verdicts else "uninformative"
    return next((word for word in ("loses", "inconclusive") if word in telling), "safe")


def _ratio(pairs: Sequence[tuple[Run, Run]], path: str) -> float | None:
    values = [(pick(baseline.summary, path), pick(run.summary, path)) for baseline, run in pairs]
    ratios = [ours / theirs for theirs, ours in values if theirs and ours is not None]
    return median(ratios) if ratios else None
