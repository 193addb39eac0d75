"""What each setting costs in quality, by task: a table, a verdict in words for each row, and its data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.compare.conf_files import usual_losses
from harness.compare.divergence import divergence_limit
from harness.compare.seen import NOT_SEEN
from harness.compare.task_costs import CLASSES, ClassCost, Cost, SettingCost, setting_costs
from harness.records.reader import Run
from harness.report.labels import setting_labels
from harness.report.values import MISSING, Amount, listed, number, signed

if TYPE_CHECKING:
    import pandas as pd

_AXES = {
    "kv": "What each KV setting costs in quality, by task",
    "weights": "What each weight precision costs in quality, by task",
}
_COLUMNS = (
    "axis", "setting", "baseline", "task", "figure", "unit", "of_baseline", "of_setting", "lost", "lost_low",
    "lost_high", "verdict", "detectable", "items",
)  # fmt: skip


@dataclass(frozen=True)
class CostRow:
    """A setting in the table. ids: of its runs. cells: for each class its lines, the first the verdict. sentence: in
    words.
    """

    label: str
    ids: list[str]
    sentence: str
    memory: Amount
    throughput: Amount
    cells: list[tuple[str, str, list[str]]]  # class, verdict, lines


@dataclass(frozen=True)
class CostSection:
    """One table. name: of its data. baselines: what the rows are held against."""

    name: str
    title: str
    rows: list[CostRow]
    notes: list[str]
    data: "pd.DataFrame"


def cost_sections(runs: Sequence[Run]) -> list[CostSection]:
    """A section for each axis of which at least one setting has a baseline and a figure of quality."""
    limits = usual_losses()
    labels = setting_labels(runs)
    rows = setting_costs(runs, labels, limits)
    return [
        _section(axis, title, found, labels, divergence_limit(limits))
        for axis, title in _AXES.items()
        if (found := [row for row in rows if row.axis == axis])
    ]


def cost_lines(runs: Sequence[Run]) -> list[str]:
    """A line for each setting, for a terminal."""
    return [
        f"{row.label}: {row.sentence}"
        for section in cost_sections(runs)
        for row in section.rows
    ]  # fmt: skip


def _section(
    axis: str, title: str, rows: Sequence[SettingCost], labels: Mapping[str, str], nats: float
) -> CostSection:
    shown = [name for name in CLASSES if any(name in row.classes for row in rows)]
    baselines = list(dict.fromkeys(row.baseline for row in rows))
    notes = [
        f"Held against {listed(baselines)}: the same engine, requests and "
        f"{'weights' if axis == 'kv' else 'KV cache'}. Beside each loss its 95 % interval.",
        f"Safe: the whole interval is within the accepted loss, {_accepted(rows)}. "
        "Loses: the whole interval is beyond it.",
    ]
    if any("chat" in row.classes for row in rows):
        notes.append(
            f"Accepted of the KL divergence are {_nats(nats)} nats a token: as much more perplexity of what full "
            "precision writes. It is a lower bound: tokens whose probability the engine does not tell count as one. "
            "Greedy tokens in common only inform: one near tie parts two texts for good."
        )
    shown_rows = [_row(row, [run for run in labels if labels[run] == row.label], shown) for row in rows]
    return CostSection(f"quality_costs_{axis}", title, shown_rows, notes, _data(rows))


def _accepted(rows: Sequence[SettingCost]) -> str:
    """2 points of RAG answers, 1.5 % of perplexity: of every figure that is shown."""
    limits = {
        cost.label: f"{100 * cost.limit:g} {'%' if cost.unit == 'relative' else 'points'} of {cost.label}"
        for row in rows
        for found in row.classes.values()
        for cost in found.costs
        if cost.unit != "nats"
    }
    return listed(list(limits.values())) or "that of the divergence"


def _row(row: SettingCost, ids: list[str], shown: Sequence[str]) -> CostRow:
    cells = [(name, *_cell(row.classes.get(name))) for name in shown]
    return CostRow(
        row.label, ids, verdict_words(row.classes), _times(row.kv_memory), _times(row.throughput), cells
    )


def _cell(found: ClassCost | None) -> tuple[str, list[str]]:
    if found is None:
        return "", [MISSING]
    lines = [_line(cost) for cost in found.costs]
    if found.agreement is not None:
        agreed = found.agreement
        span = f" ({agreed.interval[0]:.0f} to {agreed.interval[1]:.0f})" if agreed.interval else ""
        lines.append(f"greedy tokens in common {agreed.middle}{span} of {agreed.tokens}")
    return found.verdict, lines


def _line(cost: Cost) -> str:
    """perplexity +1.2 % (0.8 to 1.6); RAG answers −4 points (−12 to +4); KL divergence ≥ 0.012 nats (…)."""
    if cost.verdict == "uninformative":
        return f"{cost.label} uninformative: full precision is not above chance"
    if cost.verdict == NOT_SEEN:
        return f"{cost.label} not judged: {cost.why}"
    if cost.unit == "nats":
        span = f" ({_nats(cost.interval[0])} to {_nats(cost.interval[1])})" if cost.interval else ""
        return f"{cost.label} ≥ {_nats(cost.lost)} nats{span}"
    sign = 1 if cost.unit == "relative" else -1
    ends = sorted(sign * 100 * end for end in cost.interval or (cost.lost, cost.lost))
    unit = "%" if cost.unit == "relative" else "points"
    return f"{cost.label} {signed(sign * 100 * cost.lost)} {unit} ({signed(ends[0])} to {signed(ends[1])})"


def verdict_words(classes: Mapping[str, ClassCost]) -> str:
    """Safe for chat, not for rag; inconclusive for summarization: the smallest loss these data could show is …"""
    by_word: dict[str, list[str]] = {}
    for name, found in classes.items():
        by_word.setdefault(found.verdict, []).append(name)
    safe, not_safe = by_word.get("safe", []), by_word.get("loses", [])
    parts = []
    if safe:
        parts.append(f"safe for {listed(safe)}" + (f", not for {listed(not_safe)}" if not_safe else ""))
    elif not_safe:
        parts.append(f"not safe for {listed(not_safe)}")
    parts += [
        f"inconclusive for {name}: {_undecided(classes[name])}" for name in by_word.get("inconclusive", [])
    ]
    if guessed := by_word.get("uninformative"):
        parts.append(f"uninformative for {listed(guessed)}: full precision is not above chance")
    for name in by_word.get(NOT_SEEN, []):
        whys = [cost.why for cost in classes[name].costs if cost.why]
        parts.append(f"not measured for {name}: {'; '.join(dict.fromkeys(whys))}")
    return f"{'; '.join(parts)}."


def _undecided(found: ClassCost) -> str:
    """By the figure that leaves most open: what it could have shown, or why it cannot exclude a loss."""
    open_ones = [cost for cost in found.costs if cost.verdict == "inconclusive"]
    if not open_ones:
        return "greedy tokens alone decide nothing"
    widest = max(open_ones, key=lambda cost: cost.most - cost.limit)
    if widest.why:
        return widest.why
    if widest.unit == "nats":
        return f"up to {_nats(widest.most) if widest.most < float('inf') else 'any number of'} nats are not excluded"
    unit = " %" if widest.unit == "relative" else " points"
    could = number(100 * widest.detectable) if widest.detectable < float("inf") else "unbounded"
    return f"the smallest loss these data could show is {could}{unit} of {widest.label}"


def _data(rows: Sequence[SettingCost]) -> "pd.DataFrame":
    import pandas as pd

    return pd.DataFrame(
        [
            (
                row.axis, row.label, row.baseline, name, cost.label, cost.unit, cost.baseline, cost.candidate,
                cost.lost, *(cost.interval or (None, None)), cost.verdict, cost.detectable, cost.items,
            )
            for row in rows
            for name, found in row.classes.items()
            for cost in found.costs
        ],
        columns=list(_COLUMNS),
    )  # fmt: skip


def _times(ratio: float | None) -> Amount:
    return Amount(MISSING if ratio is None else f"×{number(ratio)}", ratio)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _nats(value: float) -> str:
    return f"{value:.3f}" if value < 1 else number(value)
