"""A comparison in words, alike on a terminal, in Markdown and in HTML."""

from collections.abc import Callable, Mapping, Sequence
from math import inf

from harness.compare.cells import LeftOut
from harness.compare.two_sides import CellComparison, Judged
from harness.metrics.quality_figures import QUALITY_FIGURES
from harness.report.values import MISSING, listed, memory, number, percent, two_decimals

HEADINGS = ("", "baseline", "candidate", "change", "95 % interval", "verdict")
_SHOWN: Mapping[str, Callable[[float | None], str]] = {"bytes": memory, "share": percent}
_IN_POINTS = {figure.path for figure in QUALITY_FIGURES if figure.chance is not None}


def title(found: CellComparison) -> str:
    """`rag: slower`, with the setting where there are several."""
    cell = found.cell
    where = f"{cell.workload} ({cell.setting})" if cell.setting else cell.workload
    return f"{where}: {headline(found)}"


def headline(found: CellComparison) -> str:
    """What was found in one sentence: which deciding figures moved, and by how much."""
    moved = [one for one in found.judged if one.measure.gating and one.verdict.word in ("better", "worse")]
    if moved:
        return "; ".join(f"{one.measure.title} {change(one)} ({one.word})" for one in moved)
    return {"same": "no difference that matters", "inconclusive": "not decided"}.get(found.word, found.word)


def runs(found: CellComparison) -> str:
    """How many runs a side, and how many of them a validity check spoils."""
    sides = []
    for name, members, spoilt in zip(
        ("baseline", "candidate"), (found.cell.baseline, found.cell.candidate), found.spoilt, strict=True
    ):
        word = "run" if len(members) == 1 else "runs"
        sides.append(f"{name} {len(members)} {word}" + (f" ({spoilt} with a failed check)" if spoilt else ""))
    return ", ".join(sides)


def notes(found: CellComparison) -> list[str]:
    """What stands below a cell's table."""
    spoilt = "✗: a failed check spoils this figure in some of the runs; the report of those runs says which."
    marks = [spoilt] if any(one.spoilt for one in found.judged) else []
    return [*marks, *reasons(found), *quality_words(found), *([found.advice] if found.advice else [])]


def quality_words(found: CellComparison) -> list[str]:
    """What the verdicts on quality rest on, and the smallest difference that could have been told from none."""
    over = [f"{one.measure.title} over {_items(one)}{_told(one)}" for one in found.judged if one.paired]
    blind = [
        f"{one.measure.title} ({one.verdict.why})"
        for one in found.judged
        if one.measure.path.startswith("quality.")
        and one.verdict.word == "inconclusive"
        and not one.measure.gating
    ]
    pairs = f"Quality is compared by the items that both sides were asked: {'; '.join(over)}."
    return [*([pairs] if over else []), *([f"Not decided: {', '.join(blind)}."] if blind else [])]


def not_compared(left: Sequence[LeftOut]) -> list[str]:
    """A line for each reason why runs are compared with nothing."""
    by_reason: dict[tuple[str, str], list[str]] = {}
    for one in left:
        by_reason.setdefault((one.side, one.why), []).append(one.run)
    return [f"Not compared, {side}: {listed(runs)} ({why})." for (side, why), runs in by_reason.items()]


def row(one: Judged) -> tuple[str, ...]:
    """Cells of HEADINGS."""
    unit = one.measure.unit
    shown = two_decimals if one.measure.path == "quality.perplexity" else _SHOWN.get(unit, number)
    name = one.measure.title if unit in _SHOWN or not unit else f"{one.measure.title}, {unit}"
    name = f"{name} ✗" if one.spoilt else name
    return (name, shown(one.baseline), shown(one.candidate), change(one), interval(one), one.word)


def change(one: Judged) -> str:
    """The candidate's figure against the baseline's: +12.3 %, of right answers +4.0 pts."""
    if one.measure.path in _IN_POINTS:
        return f"{_signed(one.candidate - one.baseline)} pts"
    return _percent(one.verdict.ratio.value)


def interval(one: Judged) -> str:
    """Bounds of the change, where there are runs enough for bounds that hold."""
    ratio = one.verdict.ratio
    if one.paired and one.paired.points:
        return f"{_signed(one.paired.low)} … {_signed(one.paired.high)}"  # the change beside it has the unit
    sure = one.paired is not None or one.verdict.p is not None
    if not sure or ratio.low is None or ratio.high is None or ratio.high == inf:
        return MISSING
    return f"{_percent(ratio.low).removesuffix(' %')} … {_percent(ratio.high)}"


def reasons(found: CellComparison) -> list[str]:
    """Why deciding figures are not decided, and the least change that these runs could have shown."""
    by_reason: dict[str, list[str]] = {}
    for one in found.judged:
        if not one.measure.gating or one.verdict.word != "inconclusive":
            continue
        least = one.verdict.detectable
        if one.paired:
            could = f", a change of {_least(one)} could have been shown" if least not in (None, inf) else ""
        else:
            could = (
                f", a change of {100 * least:.0f} % could have been shown" if one.verdict.p and least else ""
            )
        by_reason.setdefault(f"{one.verdict.why}{could}", []).append(one.measure.title)
    return [f"Not decided: {', '.join(titles)} ({reason})." for reason, titles in by_reason.items()]


def _signed(share: float) -> str:
    text = f"{100 * share:+.1f}"
    return "0.0" if float(text) == 0 else text


def _items(one: Judged) -> str:
    count = one.paired.items if one.paired else 0
    word = "item" if one.measure.path in _IN_POINTS else "window"
    return f"{count} {word}{'' if count == 1 else 's'}"


def _told(one: Judged) -> str:
    """What so many items could tell; "" where the figure could show nothing however many there were."""
    if one.verdict.detectable is None:
        return ""
    told = "no difference" if one.verdict.detectable == inf else f"a difference of {_least(one)}"
    return f" ({told} could have been told)"


def _least(one: Judged) -> str:
    """The smallest difference that could be told from none, in the unit of the figure."""
    unit = "points" if one.measure.path in _IN_POINTS else "%"
    return f"{100 * (one.verdict.detectable or 0.0):.1f} {unit}"


def _percent(ratio: float) -> str:
    if ratio == inf:
        return MISSING
    return f"{100 * (ratio - 1):+.1f} %"
