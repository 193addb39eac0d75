"""What a setting costs in quality: the difference to a baseline over the same items, how sure it is, and a verdict.

Both runs answered the same items, so what is judged is the difference of each item, not two intervals beside each
other: the items' own difficulty falls out.
"""

from dataclasses import dataclass

from harness.compare.baselines import baseline_of, weights_baseline_of
from harness.compare.paired_items import paired_items
from harness.compare.seen import NOT_SEEN, THE_SAME, UNTOLD, kv_differs, why_not_seen
from harness.metrics.quality_figures import QualityFigure
from harness.records.paths import pick
from harness.records.reader import Run

__all__ = ["QualityLoss", "baseline_of", "comparable", "loss", "verdict_on", "weights_baseline_of"]


@dataclass(frozen=True, slots=True)
class QualityLoss:
    """One figure of a run against its baseline's.

    baseline, candidate: the two figures. difference: candidate − baseline, of perplexity divided by the baseline.
    interval: of the difference, 95 %. limit: the loss that is accepted, in the difference's unit. items: pairs.
    verdict: "safe" (the whole interval within the limit), "loses" (the whole interval beyond it), "inconclusive",
    "uninformative" (the baseline is not above chance, so there was nothing to lose), or "not seen" (what the
    candidate does otherwise cannot show in this figure). why: of the last, or of an inconclusive one where more items
    would not help; else "".
    """

    figure: QualityFigure
    baseline: float
    candidate: float
    difference: float
    interval: tuple[float, float]
    limit: float
    items: int
    verdict: str
    why: str = ""

    @property
    def telling(self) -> bool:
        """Whether it says anything of a loss; else the loss is as good as not measured."""
        return self.verdict not in UNTOLD

    @property
    def lost(self) -> float:
        """How much worse the candidate is; negative where it is better."""
        return 0.0 - self.difference if self.figure.higher_is_better else self.difference

    @property
    def most_lost(self) -> float:
        """The largest loss that these data do not exclude: the smallest limit under which it would be safe."""
        return -self.interval[0] if self.figure.higher_is_better else self.interval[1]

    @property
    def detectable(self) -> float:
        """The smallest loss that these data could tell from none."""
        return self.most_lost - self.lost


def loss(baseline: Run, candidate: Run, figure: QualityFigure, limit: float) -> QualityLoss | None:
    """Compare one figure of two runs; None where one of them lacks it, or they were asked different items.

    limit: the accepted loss, as a share of 1 (of right answers; of perplexity relative to the baseline's).
    """
    items = paired_items([baseline], [candidate], figure)
    if items is None:
        return None
    before, after = (pick(run.summary, figure.path) for run in (baseline, candidate))
    difference, low, high = items.difference()
    lost = (-high, -low) if figure.higher_is_better else (low, high)
    why = why_not_seen(baseline, candidate, figure)
    if not why and figure.chance is None and items.equal and kv_differs(baseline, candidate):
        why = THE_SAME
    told = verdict_on(lost, limit) if above_chance(baseline, figure) else "uninformative"
    word = NOT_SEEN if why else told
    return QualityLoss(figure, before, after, difference, (low, high), limit, items.count, word, why)


def comparable(baseline: Run, candidate: Run, figure: QualityFigure) -> bool:
    """Whether both runs have the figure, item by item of the same items."""
    return paired_items([baseline], [candidate], figure) is not None


def verdict_on(lost: tuple[float, float], limit: float) -> str:
    """The word for an interval of losses: safe, loses or inconclusive."""
    low, high = lost
    return "safe" if high <= limit else "loses" if low > limit else "inconclusive"


def above_chance(run: Run, figure: QualityFigure) -> bool:
    """Whether the run's own interval excludes what guessing gives; true for a figure without such a level."""
    if figure.chance is None:
        return True
    chance, interval = pick(run.summary, figure.chance), pick(run.summary, figure.interval)
    return bool(chance is None or interval is None or interval[0] > chance)
