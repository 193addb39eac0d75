"""Whether quality differs between two sides, from the items that both were asked."""

from collections.abc import Sequence
from dataclasses import dataclass

from harness.compare.paired_items import PairedItems, paired_items
from harness.compare.quality import above_chance
from harness.compare.seen import THE_SAME, kv_differs, why_not_seen
from harness.compare.statistics import Ratio, Verdict
from harness.metrics.quality_figures import QualityFigure
from harness.records.reader import Run

_NOT_PAIRED = "no items are known that both sides were asked"
_CHANCE = "neither side is above chance"


@dataclass(frozen=True, slots=True)
class Paired:
    """The difference of a quality figure over `items` that both sides were asked, candidate − baseline.

    low, high: its interval. points: it is one of right answers as a share of 1; else of perplexity, relative.
    """

    difference: float
    low: float
    high: float
    items: int
    points: bool

    @property
    def detectable(self) -> float:
        """The smallest difference that these items could tell from none."""
        return max(self.high - self.difference, self.difference - self.low)


@dataclass(frozen=True, slots=True)
class QualityVerdict:
    """Both figures over the items, the verdict, and what it rests on; paired None where no items are in common."""

    baseline: float
    candidate: float
    verdict: Verdict
    paired: Paired | None


def quality_verdict(
    baseline: Sequence[Run],
    candidate: Sequence[Run],
    figure: QualityFigure,
    least_effect: float,
    alpha: float,
) -> QualityVerdict | None:
    """better, worse, same or inconclusive, as for speed; None where no items are known of both sides.

    least_effect: the smallest difference that matters, in the unit of `Paired.difference`. alpha: the chance of a
    false alarm. better, worse: the interval excludes 0, of answers an exact sign test over the items that changed
    rejects too (the interval of a handful is too narrow), and the difference matters. same: the whole interval is
    within what matters.
    """
    items = paired_items(baseline, candidate, figure)
    if items is None:
        return None
    found = Paired(*items.difference(alpha), items.count, figure.chance is not None)
    before, after = items.figures()
    ratio = after / before if before else float("inf")
    bounds = (None, None) if found.points else (1 + found.low, 1 + found.high)
    p = items.sign_p() if found.points else None
    apart = not found.low <= 0 <= found.high and (p is None or p <= alpha)
    word, why = _word(found, apart, figure.higher_is_better, least_effect)
    if blind := _blind(baseline, candidate, figure, items):
        word, why = "inconclusive", blind
    verdict = Verdict(word, why, Ratio(ratio, *bounds), p, found.detectable)
    return QualityVerdict(before, after, verdict, found)


def not_paired(before: float, after: float) -> QualityVerdict:
    """Of figures whose items are not in common: a difference of theirs may be one of what was asked."""
    ratio = Ratio(after / before if before else float("inf"), None, None)
    return QualityVerdict(before, after, Verdict("inconclusive", _NOT_PAIRED, ratio, None, None), None)


def _word(found: Paired, apart: bool, higher_is_better: bool, least_effect: float) -> tuple[str, str]:
    said = f"over {found.items} items"
    if -least_effect <= found.low and found.high <= least_effect:
        return "same", f"the whole interval is within what matters, {said}"
    if apart and abs(found.difference) >= least_effect:
        return "better" if (found.difference > 0) is higher_is_better else "worse", said
    return "inconclusive", f"the difference {'is smaller than matters' if apart else 'could be chance'}"


def _blind(
    baseline: Sequence[Run], candidate: Sequence[Run], figure: QualityFigure, items: PairedItems
) -> str:
    """Why this figure could show nothing here; "" where it could."""
    if not any(above_chance(run, figure) for run in (*baseline, *candidate)):
        return _CHANCE
    why = why_not_seen(baseline[0], candidate[0], figure)
    if not why and figure.chance is None and items.equal and kv_differs(baseline[0], candidate[0]):
        return THE_SAME
    return why
