"""Groups of runs that were asked the same, set side by side: medians, ranges, ratios to the best, and verdicts."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from harness.compare.divergence import continued_alike
from harness.compare.fairness import Unequal, attached, unequal
from harness.compare.same_model import Agreement, agreement
from harness.compare.statistics import Verdict, verdict
from harness.metrics.quality_figures import QUALITY_FIGURES
from harness.records.paths import pick
from harness.records.reader import Run

_FALSE_ALARMS = 0.05  # of one comparison, shared by the metrics that decide (Bonferroni)
_LEAST_EFFECT = 0.03  # a smaller relative difference does not matter


@dataclass(frozen=True, slots=True)
class Metric:
    """A figure by which groups are compared. path: its key in a run's summary."""

    name: str
    path: str
    higher_is_better: bool


# The four that decide; what else a row shows only informs.
METRICS = (
    Metric("output throughput", "output_tokens_per_s", True),
    Metric("TTFT p50", "ttft_ms.p50", False),
    Metric("TPOT p50", "tpot_ms.p50", False),
    Metric("KV per request", "memory.kv_per_request_bytes", False),
)


@dataclass(frozen=True, slots=True)
class Figure:
    """Median over the runs of a group, and its range."""

    middle: float
    low: float
    high: float
    runs: int


@dataclass(frozen=True, slots=True)
class Side:
    """One group. ids: of all its runs, also of those that came to no end. spoilt: runs that failed a validity check.
    figures: by metric name, only those that its runs have.
    right: share of right answers by the label of the task, median over the runs, only those that were measured.
    agreement: of its greedy continuations with those of the reference, None where one of them has none.
    """

    label: str
    ids: tuple[str, ...]
    runs: int
    spoilt: int
    incomplete: tuple[str, ...]
    figures: Mapping[str, Figure]
    perplexity: float | None
    no_perplexity: str
    right: Mapping[str, float]
    peak_bytes: float | None
    agreement: Agreement | None


@dataclass(frozen=True, slots=True)
class Winner:
    """The best group of one metric, against the next best. verdict: of the best with the next as baseline."""

    metric: Metric
    best: str
    next_best: str
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Comparison:
    """Groups that were asked the same. reference: label of the group that agreement is counted against.

    attached: groups whose server ran already, so that what it was given is not known.
    """

    workload: str
    sides: tuple[Side, ...]
    winners: tuple[Winner, ...]
    reference: str | None
    unequal: tuple[Unequal, ...]
    attached: tuple[str, ...]


def compare(runs: Sequence[Run], labels: Mapping[str, str]) -> list[Comparison]:
    """One comparison for each thing that at least two groups were asked; `labels`: group by run id.

    Groups that were asked the same set of plans (one for each seed) of a workload are compared over all of them; else
    plan by plan. A run that failed or ended early gives no figures; it stands, with its reason, in every
    comparison of its workload.
    """
    incomplete: dict[str, list[Run]] = defaultdict(list)
    asked: dict[tuple[str, Any], list[Run]] = defaultdict(list)
    for run in runs:
        if run.status != "complete":
            incomplete[_workload(run)].append(run)
        else:
            asked[_workload(run), run.fingerprint.get("model_sha256")].append(run)
    found = []
    for (workload, _), members in asked.items():
        for alike in _asked_alike(members, labels):
            groups: dict[str, list[Run]] = defaultdict(list)
            for run in (*alike, *incomplete[workload]):
                groups[labels[run.id]].append(run)
            if len(groups) > 1:
                found.append(_compared(workload, groups))
    return found


def _asked_alike(runs: Sequence[Run], labels: Mapping[str, str]) -> list[list[Run]]:
    """All of them where every group has the same plans, else those of each plan."""
    plans: dict[str, set[Any]] = defaultdict(set)
    by_plan: dict[Any, list[Run]] = defaultdict(list)
    for run in runs:
        plan = run.fingerprint.get("plan_sha256")
        plans[labels[run.id]].add(plan)
        by_plan[plan].append(run)
    first, *others = plans.values()
    return [list(runs)] if all(plan == first for plan in others) else list(by_plan.values())


def _compared(workload: str, groups: Mapping[str, Sequence[Run]]) -> Comparison:
    reference = next((label for label, runs in groups.items() if _continued(runs)), None)
    against = _continued(groups[reference]) if reference is not None else None
    sides = tuple(_side(label, runs, against) for label, runs in groups.items())
    winners = tuple(winner for metric in METRICS if (winner := _winner(metric, groups)))
    return Comparison(workload, sides, winners, reference, unequal(groups), attached(groups))


def _side(label: str, runs: Sequence[Run], reference: Run | None) -> Side:
    measured = [run for run in runs if run.status == "complete"]
    figures = {}
    for metric in METRICS:
        if values := _values(measured, metric.path):
            figures[metric.name] = Figure(median(values), min(values), max(values), len(values))
    ours = _continued(measured, reference)
    return Side(
        label=label,
        ids=tuple(run.id for run in runs),
        runs=len(measured),
        spoilt=sum(any(check["ok"] is False for check in run.validity) for run in measured),
        incomplete=tuple(
            f"{run.status}, {run.reason or 'no reason was recorded'}"
            for run in runs
            if run.status != "complete"
        ),
        figures=figures,
        perplexity=_middle(measured, "quality.perplexity"),
        no_perplexity=next(
            (str(why) for run in measured if (why := pick(run.summary, "quality.reason"))), ""
        ),
        right={
            figure.label: value
            for figure in QUALITY_FIGURES
            if figure.chance and (value := _middle(measured, figure.path)) is not None
        },
        peak_bytes=_middle(measured, "memory.peak_process_bytes"),
        agreement=agreement(_ids(ours), _ids(reference)) if ours and reference else None,
    )


def _winner(metric: Metric, groups: Mapping[str, Sequence[Run]]) -> Winner | None:
    values = {
        label: _values([run for run in runs if run.status == "complete"], metric.path)
        for label, runs in groups.items()
    }
    order = sorted(
        (label for label, found in values.items() if found),
        key=lambda label: median(values[label]),
        reverse=metric.higher_is_better,
    )
    if len(order) < 2 or not median(values[order[1]]):
        return None
    best, second = order[:2]
    alpha = _FALSE_ALARMS / len(METRICS)
    baseline, candidate = ([[value] for value in values[label]] for label in (second, best))
    found = verdict(baseline, candidate, metric.higher_is_better, _LEAST_EFFECT, alpha)
    return Winner(metric, best, second, found)


def _continued(runs: Sequence[Run], alike: Run | None = None) -> Run | None:
    """The first run with greedy continuations, of the same texts as another's where one is given."""
    return next((run for run in runs if _ids(run) and (alike is None or continued_alike(alike, run))), None)


def _ids(run: Run) -> Sequence[Sequence[int]]:
    return pick(run.summary, "quality.greedy_ids") or ()


def _values(runs: Sequence[Run], path: str) -> list[float]:
    return [value for run in runs if (value := pick(run.summary, path)) is not None]


def _middle(runs: Sequence[Run], path: str) -> float | None:
    values = _values(runs, path)
    return median(values) if values else None


def _workload(run: Run) -> str:
    return str(pick(run.config, "workload.name") or "a workload")
