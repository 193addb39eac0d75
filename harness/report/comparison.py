"""Groups of runs side by side, as the page shows them: a table for each thing that was asked, and who is best."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from harness.compare.groups import Comparison, Figure, Side, Winner, compare
from harness.compare.same_model import Agreement
from harness.metrics.quality_figures import QUALITY_FIGURES
from harness.records.paths import pick
from harness.records.reader import Run
from harness.report.values import MISSING, Amount, listed, memory, number, percent, two_decimals

_SHOWN: Mapping[str, tuple[str, Callable[[float | None], str]]] = {
    "output throughput": ("tokens/s", number),
    "TTFT p50": ("ms", number),
    "TPOT p50": ("ms", number),
    "KV per request": ("", memory),
}
_TASKS = tuple(figure.label for figure in QUALITY_FIGURES if figure.chance)


@dataclass(frozen=True)
class SideRow:
    """A group in the table. ids: of its runs. cells: (heading, figure, best?)."""

    label: str
    ids: tuple[str, ...]
    runs: Amount
    cells: list[tuple[str, Amount, bool]]
    incomplete: list[str]


@dataclass(frozen=True)
class ComparisonSection:
    """One table with its sentences. reference: whose greedy tokens the others are compared with."""

    title: str
    rows: list[SideRow]
    sentences: list[str]


def comparison_sections(runs: Sequence[Run], labels: Mapping[str, str]) -> list[ComparisonSection]:
    """One for each thing that at least two groups were asked."""
    # The section's title names the workload once for all its rows.
    short = {run.id: labels[run.id].replace(f" · {pick(run.config, 'workload.name')}", "", 1) for run in runs}
    return [_section(comparison) for comparison in compare(runs, short)]


def _section(comparison: Comparison) -> ComparisonSection:
    best = {winner.metric.name: winner.best for winner in comparison.winners}
    extras = _extras(comparison)
    rows = [_row(side, best, extras) for side in comparison.sides]
    sentences = [_sentence(winner, comparison) for winner in comparison.winners]
    sentences += _same_model(comparison)
    sentences += _unequal(comparison)
    return ComparisonSection(f"Side by side: {comparison.workload}", rows, sentences)


def _row(side: Side, best: Mapping[str, str], extras: Sequence[str]) -> SideRow:
    cells = []
    for name, (unit, shown) in _SHOWN.items():
        heading = f"{_title(name)}, {unit}" if unit else _title(name)
        cells.append((heading, _range(side.figures.get(name), shown), best.get(name) == side.label))
    further = {
        "Peak memory": Amount(memory(side.peak_bytes), side.peak_bytes),
        "Perplexity": Amount(
            two_decimals(side.perplexity) if side.perplexity is not None else side.no_perplexity or MISSING,
            side.perplexity,
        ),
        **{
            _title(label): Amount(percent(right), right)
            for label in _TASKS
            for right in (side.right.get(label),)
        },
        "Greedy tokens in common": _agreed(side.agreement),
    }
    cells += [(heading, further[heading], False) for heading in extras]
    spoilt = f" ({side.spoilt} with a failed check)" if side.spoilt else ""
    runs = Amount(f"{side.runs}{spoilt}", side.runs)
    return SideRow(side.label, side.ids, runs, cells, list(dict.fromkeys(side.incomplete)))


def _extras(comparison: Comparison) -> list[str]:
    """Columns beside the deciding ones of which at least one group has a figure."""
    sides = comparison.sides
    present = {
        "Peak memory": any(side.peak_bytes is not None for side in sides),
        "Perplexity": any(side.perplexity is not None or side.no_perplexity for side in sides),
        **{_title(label): any(label in side.right for side in sides) for label in _TASKS},
        "Greedy tokens in common": any(side.agreement is not None for side in sides),
    }
    return [heading for heading, there in present.items() if there]


def _range(figure: Figure | None, shown: Callable[[float | None], str]) -> Amount:
    if figure is None:
        return Amount(MISSING, None)
    span = f" ({shown(figure.low)}–{shown(figure.high)})" if figure.runs > 1 else ""
    return Amount(f"{shown(figure.middle)}{span}", figure.middle)


def _agreed(found: Agreement | None) -> Amount:
    if found is None:
        return Amount(MISSING, None)
    span = f" ({found.interval[0]:.0f}–{found.interval[1]:.0f})" if found.interval else ""
    words = f"{found.same} of {found.prompts} alike, median {found.middle}{span} of {found.tokens}"
    return Amount(words, found.middle)


def _sentence(winner: Winner, comparison: Comparison) -> str:
    """Who is best in one metric, by how much, and whether that is more than chance."""
    unit, shown = _SHOWN[winner.metric.name]
    sides = {side.label: side for side in comparison.sides}
    ours, theirs = (sides[label].figures[winner.metric.name] for label in (winner.best, winner.next_best))
    ratio = winner.verdict.ratio
    judged = (
        winner.verdict.p is not None
    )  # an interval from fewer runs than a verdict takes is far too narrow
    interval = f", 95 % interval {number(ratio.low)} to {number(ratio.high)}" if judged else ""
    best, other = f"{winner.best} {shown(ours.middle)}", f"{winner.next_best} {shown(theirs.middle)}"
    in_unit = f" {unit}" if unit else ""
    found = f"{_title(winner.metric.name)}: {best} against {other}{in_unit}, ratio {number(ratio.value)}{interval}."
    if winner.verdict.word in ("better", "worse"):
        return f"{found} The difference is real ({winner.verdict.why})."
    if winner.verdict.word == "same":
        return f"{found} They are the same ({winner.verdict.why})."
    detectable = winner.verdict.detectable
    could = (
        f" These runs could have shown a change of {100 * detectable:.0f} %." if judged and detectable else ""
    )
    return f"{found} Not decided: {winner.verdict.why}.{could}"


def _title(name: str) -> str:
    return name[:1].upper() + name[1:]


def _same_model(comparison: Comparison) -> list[str]:
    """What greedy continuations are compared with."""
    if comparison.reference is None or sum(side.agreement is not None for side in comparison.sides) < 2:
        return []
    return [f"Greedy tokens are compared with those of {comparison.reference}, prompt by prompt."]


def _unequal(comparison: Comparison) -> list[str]:
    """What the sides were not given alike, and of whom that is not known."""
    theirs = list(comparison.attached)
    unknown = [
        f"Servers that ran already ({listed(theirs)}): their cores, limits, memory and precisions are not known."
    ]
    if not comparison.unequal:
        known = "Client and load" if theirs else "Cores, limits, memory, precisions and load"
        return [f"{known} were the same for all.", *(unknown if theirs else [])]
    parts = []
    for found in comparison.unequal:
        by_value: dict[str, list[str]] = {}
        for label, value in found.values.items():
            by_value.setdefault(value, []).append(label)
        parts.append(
            f"{found.name} ({'; '.join(f'{value}: {listed(who)}' for value, who in by_value.items())})"
        )
    differ = f"Not the same for all: {', '.join(parts)}."
    return [differ, *unknown] if theirs else [f"{differ} Everything else that should be equal was."]
