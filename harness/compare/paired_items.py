"""Quality of two sides by item: what both answered of the same items, and the difference with its interval.

Shares of right answers: the adjusted Wald interval for paired proportions (Bonett and Price 2012), as if one more
item had been won and one lost. Resampling would call a difference of zero certain wherever no item changed, though
twenty unchanged items cannot exclude a loss of one in ten. For items that give shares (facts found of four) the same
formula holds with their squares.
Perplexity: the difference of the mean −log p by window, a ratio estimator with Student's t over the windows (Cochran
1977, section 6.4), then exp; four windows are too few to be resampled.

The repeats of a side were asked the same items, and mostly answer them alike: an item counts once, by its mean over
them. Other seeds ask other items, which are more items.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean

from harness.metrics.quality_figures import QualityFigure
from harness.records.paths import pick
from harness.records.reader import Run

ALPHA = 0.05  # of a two-sided interval of 95 %
_WINDOW_TOKENS = "quality.window_tokens"


@dataclass(frozen=True, slots=True)
class PairedItems:
    """Values of both sides for the same items in the same order, at least one.

    tokens: of perplexity, how many tokens each window's Σ −log p is over; None for shares of right answers.
    """

    baseline: tuple[float, ...]
    candidate: tuple[float, ...]
    tokens: tuple[int, ...] | None

    @property
    def count(self) -> int:
        """How many items."""
        return len(self.baseline)

    @property
    def equal(self) -> bool:
        """Whether every item has the same value on both sides."""
        return self.baseline == self.candidate

    def figures(self) -> tuple[float, float]:
        """The figure of each side over these items: perplexity, or the share of right answers."""
        sides = (self.baseline, self.candidate)
        if self.tokens is None:
            before, after = (fmean(side) for side in sides)
        else:
            before, after = (math.exp(sum(side) / sum(self.tokens)) for side in sides)
        return before, after

    def sign_p(self) -> float:
        """Two-sided exact sign test over the items that differ (of answers that is McNemar's); 1 where none does."""
        from scipy.stats import binomtest

        changes = [ours - theirs for theirs, ours in zip(self.baseline, self.candidate, strict=True)]
        won, lost = (sum(sign * change > 0 for change in changes) for sign in (1, -1))
        return float(binomtest(won, won + lost).pvalue) if won + lost else 1.0

    def least_told(self, alpha: float) -> float:
        """The smallest difference that so many items could tell from none with `alpha` false alarms; inf for none.

        Of right answers: the fewest of them that, lost one and all, both the interval and the sign test call a
        difference. Of perplexity: a shift of every window alike, at the scatter that these windows have.
        """
        if self.tokens is not None:
            difference, _, high = self.difference(alpha)
            return (1 + high) / (1 + difference) - 1
        for lost in range(1, self.count + 1):
            items = PairedItems((1.0,) * self.count, (0.0,) * lost + (1.0,) * (self.count - lost), None)
            if items.apart(alpha):
                return lost / self.count
        return math.inf

    def apart(self, alpha: float) -> bool:
        """Whether the interval of 1 − alpha excludes 0, and of right answers the sign test rejects too."""
        _, low, high = self.difference(alpha)
        return not low <= 0 <= high and (self.tokens is not None or self.sign_p() <= alpha)

    def difference(self, alpha: float = ALPHA) -> tuple[float, float, float]:
        """Candidate − baseline, of perplexity divided by the baseline's, with its interval of 1 − alpha."""
        if self.tokens is None:
            return difference_of_shares(self.baseline, self.candidate, alpha)
        return ratio_of_perplexities(self.baseline, self.candidate, self.tokens, alpha)


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a run was asked. items: what they follow from, which is the task's options, how they are fed, and the seed
    or the text's windows. tokens: of those windows.
    """

    tokenizer: str
    items: str
    tokens: tuple[int, ...] = ()


def paired_items(
    baseline: Sequence[Run], candidate: Sequence[Run], figure: QualityFigure
) -> PairedItems | None:
    """What both sides were asked of a figure's items; None where they have nothing in common, item by item."""
    theirs, ours = _by_asked(baseline, figure), _by_asked(candidate, figure)
    # A text's windows are the same whatever else was drawn with another seed: they count once.
    common = {
        asked.items: asked
        for asked in reversed(theirs)
        if asked in ours and len(theirs[asked][0]) == len(ours[asked][0])
    }.values()
    if not common:
        return None
    before, after = (
        tuple(value for asked in common for value in _means(side[asked])) for side in (theirs, ours)
    )
    tokens = tuple(count for asked in common for count in asked.tokens) if figure.chance is None else None
    return PairedItems(before, after, tokens)


def _by_asked(runs: Sequence[Run], figure: QualityFigure) -> dict[_Asked, list[list[float]]]:
    """Values by item of each run that has the figure, by what it was asked; of equal length within each."""
    found: dict[_Asked, list[list[float]]] = defaultdict(list)
    for run in runs:
        values = list(pick(run.summary, figure.items) or [])
        if pick(run.summary, figure.path) is None or not values:
            continue
        if figure.chance is None and len(_tokens(run)) != len(values):
            continue
        of_the_same = found[_asked(run, figure)]
        if not of_the_same or len(of_the_same[0]) == len(values):
            of_the_same.append(values)
    return found


def _means(runs: Sequence[Sequence[float]]) -> list[float]:
    return [float(values[0]) if len(values) == 1 else fmean(values) for values in zip(*runs, strict=True)]


def _tokens(run: Run) -> list[int]:
    return list(pick(run.summary, _WINDOW_TOKENS) or [])


def _asked(run: Run, figure: QualityFigure) -> _Asked:
    options = (pick(run.config, f"quality.{figure.task}"), pick(run.config, "quality.chunk"))
    tokenizer = str(run.fingerprint.get("plan_sha256"))  # equal ids of one workload come from one tokenizer
    if figure.chance is not None:
        return _Asked(tokenizer, repr((options, run.config.get("seed"))))
    tokens = _tokens(run)
    return _Asked(tokenizer, repr((options, pick(run.summary, "quality.text_sha256"), tokens)), tuple(tokens))


def difference_of_shares(
    baseline: Sequence[float], candidate: Sequence[float], alpha: float = ALPHA
) -> tuple[float, float, float]:
    """Mean of the items' differences (each from −1 to 1) with its interval of 1 − alpha, kept within −1 and 1."""
    changes = [float(ours) - float(theirs) for theirs, ours in zip(baseline, candidate, strict=True)]
    count = len(changes) + 2
    centre = sum(changes) / count
    variance = (sum(change**2 for change in changes) + 2) / count - centre**2
    half = NormalDist().inv_cdf(1 - alpha / 2) * math.sqrt(variance / count)
    return sum(changes) / len(changes), max(-1.0, centre - half), min(1.0, centre + half)


def ratio_of_perplexities(
    baseline: Sequence[float], candidate: Sequence[float], tokens: Sequence[int], alpha: float = ALPHA
) -> tuple[float, float, float]:
    """Relative change of perplexity with its interval of 1 − alpha, from Σ −log p of the same windows in both runs.

    One window has no interval: −1 to infinity.
    """
    from scipy.stats import t

    total, windows = sum(tokens), len(tokens)
    changes = [ours - theirs for theirs, ours in zip(baseline, candidate, strict=True)]
    shift = sum(changes) / total
    if windows < 2:
        return math.expm1(shift), -1.0, math.inf
    residuals = sum((change - shift * count) ** 2 for change, count in zip(changes, tokens, strict=True))
    half = float(t.ppf(1 - alpha / 2, windows - 1)) * math.sqrt(residuals * windows / (windows - 1)) / total
    return math.expm1(shift), math.expm1(shift - half), math.expm1(min(shift + half, 700.0))
