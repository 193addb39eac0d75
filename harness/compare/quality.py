"""What a setting costs in quality: the difference to a baseline over the same items, how sure it is, and a verdict.

Both runs answered the same items, so what is judged is the difference of each item, not two intervals beside each
other: the items' own difficulty falls out.

Shares of right answers: the adjusted Wald interval for paired proportions (Bonett and Price 2012), as if one more
item had been won and one lost. Resampling would call a difference of zero certain wherever no item changed, though
twenty unchanged items cannot exclude a loss of one in ten. For items that give shares (facts found of four) the same
formula holds with their squares.
Perplexity: the difference of the mean −log p by window, a ratio estimator with Student's t over the windows (Cochran
1977, section 6.4), then exp; four windows are too few to be resampled.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from harness.compare.baselines import baseline_of, weights_baseline_of
from harness.compare.seen import NOT_SEEN, THE_SAME, UNTOLD, kv_differs, why_not_seen
from harness.metrics.quality_figures import QualityFigure
from harness.records.paths import pick
from harness.records.reader import Run

__all__ = ["QualityLoss", "baseline_of", "loss", "verdict_on", "weights_baseline_of"]

_TAIL = 0.975  # of a two-sided interval of 95 %
_Z = 1.959963984540054  # standard normal quantile of _TAIL
_WINDOW_TOKENS = "quality.window_tokens"


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
    if not comparable(baseline, candidate, figure):
        return None
    before, after = (pick(run.summary, figure.path) for run in (baseline, candidate))
    theirs, ours = (_items(run, figure) for run in (baseline, candidate))
    if figure.chance is None:
        tokens: Sequence[int] = pick(baseline.summary, _WINDOW_TOKENS)
        difference, low, high = ratio_of_perplexities(theirs, ours, tokens)
    else:
        difference, low, high = difference_of_shares(theirs, ours)
    lost = (-high, -low) if figure.higher_is_better else (low, high)
    why = why_not_seen(baseline, candidate, figure)
    if not why and figure.chance is None and theirs == ours and kv_differs(baseline, candidate):
        why = THE_SAME
    told = verdict_on(lost, limit) if above_chance(baseline, figure) else "uninformative"
    word = NOT_SEEN if why else told
    return QualityLoss(figure, before, after, difference, (low, high), limit, len(theirs), word, why)


def comparable(baseline: Run, candidate: Run, figure: QualityFigure) -> bool:
    """Whether both runs have the figure, item by item of the same items."""
    if any(pick(run.summary, figure.path) is None for run in (baseline, candidate)):
        return False
    theirs, ours = _items(baseline, figure), _items(candidate, figure)
    if figure.chance is None and len(pick(baseline.summary, _WINDOW_TOKENS) or ()) != len(theirs):
        return False
    alike = _asked(baseline, figure) == _asked(candidate, figure)
    return bool(theirs) and len(theirs) == len(ours) and alike


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


def difference_of_shares(baseline: Sequence[float], candidate: Sequence[float]) -> tuple[float, float, float]:
    """Mean of the items' differences (each from −1 to 1) with its 95 % interval, kept within −1 and 1."""
    changes = [float(ours) - float(theirs) for theirs, ours in zip(baseline, candidate, strict=True)]
    count = len(changes) + 2
    centre = sum(changes) / count
    variance = (sum(change**2 for change in changes) + 2) / count - centre**2
    half = _Z * math.sqrt(variance / count)
    return sum(changes) / len(changes), max(-1.0, centre - half), min(1.0, centre + half)


def ratio_of_perplexities(
    baseline: Sequence[float], candidate: Sequence[float], tokens: Sequence[int]
) -> tuple[float, float, float]:
    """Relative change of perplexity with its 95 % interval, from Σ −log p of the same windows in both runs.

    One window has no interval: −1 to infinity.
    """
    from scipy.stats import t

    total, windows = sum(tokens), len(tokens)
    changes = [ours - theirs for theirs, ours in zip(baseline, candidate, strict=True)]
    shift = sum(changes) / total
    if windows < 2:
        return math.expm1(shift), -1.0, math.inf
    residuals = sum((change - shift * count) ** 2 for change, count in zip(changes, tokens, strict=True))
    half = float(t.ppf(_TAIL, windows - 1)) * math.sqrt(residuals * windows / (windows - 1)) / total
    return math.expm1(shift), math.expm1(shift - half), math.expm1(min(shift + half, 700.0))


def _items(run: Run, figure: QualityFigure) -> list[float]:
    return pick(run.summary, figure.items) or []


def _asked(run: Run, figure: QualityFigure) -> tuple[Any, ...]:
    """What the items follow from: the task's options, how they are fed, the seed, the tokenizer, a text's windows."""
    options = (pick(run.config, f"quality.{figure.task}"), pick(run.config, "quality.chunk"))
    tokenizer = run.fingerprint.get("plan_sha256")  # equal ids of one workload come from one tokenizer
    if figure.chance is None:
        return options, tokenizer, pick(run.summary, "quality.text_sha256"), pick(run.summary, _WINDOW_TOKENS)
    return options, tokenizer, run.config.get("seed")
