"""Whether quality differs between two sides, from the items that both were asked."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from harness.compare.paired_items import ALPHA, PairedItems, paired_items
from harness.compare.quality import above_chance
from harness.compare.seen import THE_SAME, kv_differs, why_not_seen
from harness.compare.statistics import Ratio, Verdict
from harness.metrics.quality_figures import QualityFigure
from harness.records.paths import pick
from harness.records.reader import Run

_NOT_PAIRED = "no items are known that both sides were asked"
_CHANCE = "neither side is above chance"
_TOO_FEW = "so few items show no difference, however large"
_ONE_WINDOW = "one window shows no difference: raise quality.perplexity.tokens"


@dataclass(frozen=True, slots=True)
class Paired:
    """The difference of a quality figure over `items` that both sides were asked, candidate − baseline.

    low, high: its interval of 95 %, whatever it was judged by; of one window −1 to infinity. points: it is one of
    right answers as a share of 1; else of perplexity, relative.
    """

    difference: float
    low: float
    high: float
    items: int
    points: bool


@dataclass(frozen=True, slots=True)
class QualityVerdict:
    """Both figures over the items, the verdict, and what it rests on; paired None where no items are in common.

    verdict.detectable: the smallest difference that so many items could tell from none, infinity where they can tell
    none, None where the figure could show nothing however many there were.
    """

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
    false alarm. better, worse: the interval of 1 − alpha excludes 0, of answers an exact sign test over the items
    that changed rejects too (the interval of a handful is too narrow), and the difference matters. same: that whole
    interval is within what matters. The interval in the result is one of 95 %, as for speed.
    """
    items = paired_items(baseline, candidate, figure)
    if items is None:
        return None
    found = Paired(*items.difference(), items.count, figure.chance is not None)
    before, after = items.figures()
    ratio = after / before if before else float("inf")
    bounds = (None, None) if found.points else (1 + found.low, 1 + found.high)
    p = items.sign_p() if found.points else None
    detectable: float | None = items.least_told(alpha)
    word, why = _word(items, figure, least_effect, alpha)
    if blind := _blind(baseline, candidate, figure, items):
        word, why, detectable = "inconclusive", blind, None
    verdict = Verdict(word, why, Ratio(ratio, *bounds), p, detectable)
    return QualityVerdict(before, after, verdict, found)


def not_paired(before: float, after: float) -> QualityVerdict:
    """Of figures whose items are not in common: a difference of theirs may be one of what was asked."""
    ratio = Ratio(after / before if before else float("inf"), None, None)
    return QualityVerdict(before, after, Verdict("inconclusive", _NOT_PAIRED, ratio, None, None), None)


def _word(items: PairedItems, figure: QualityFigure, least_effect: float, alpha: float) -> tuple[str, str]:
    difference, low, high = items.difference(alpha)
    apart = items.apart(alpha)
    if -least_effect <= low and high <= least_effect:
        return "same", f"the whole interval is within what matters, over {items.count} items"
    if apart and abs(difference) >= least_effect:
        better = (difference > 0) is figure.higher_is_better
        return "better" if better else "worse", f"over {items.count} items"
    if apart:
        return "inconclusive", "the difference is smaller than matters"
    if items.least_told(alpha) == float("inf"):
        return "inconclusive", _TOO_FEW if figure.chance is not None else _ONE_WINDOW
    shared = f" at a false alarm rate of {alpha:g}" if items.apart(ALPHA) else ""
    return "inconclusive", f"the difference could be chance{shared}"


def _blind(
    baseline: Sequence[Run], candidate: Sequence[Run], figure: QualityFigure, items: PairedItems
) -> str:
    """Why this figure could show nothing here; "" where it could.

    One run that could not show what the other side does otherwise is enough: it hides a part of the difference.
    """
    sides = [
        [run for run in side if pick(run.summary, figure.path) is not None] for side in (baseline, candidate)
    ]
    if not any(above_chance(run, figure) for side in sides for run in side):
        return _CHANCE
    # Either side may be the less exact one, and only what that one stores otherwise has to be seen.
    pairs = [pair for one, other in product(*sides) for pair in ((one, other), (other, one))]
    why = next((why for one, other in pairs if (why := why_not_seen(one, other, figure))), "")
    same = figure.chance is None and items.equal and any(kv_differs(*pair) for pair in pairs)
    return why or (THE_SAME if same else "")
