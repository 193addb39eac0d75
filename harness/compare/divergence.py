"""How far a setting's next-token distributions lie from its baseline's, as a loss of quality with a verdict."""

import math
from collections.abc import Mapping
from typing import Any

from harness.compare.distributions import distance
from harness.compare.quality import QualityLoss, verdict_on
from harness.compare.seen import NOT_SEEN, THE_SAME, kv_differs, why_not_seen
from harness.metrics.quality_figures import QualityFigure
from harness.records.paths import pick
from harness.records.reader import Run

# Not in QUALITY_FIGURES: no run has it by itself, only a pair of runs does.
DIVERGENCE = QualityFigure("agreement", "quality.kl_divergence", "KL divergence", False, "", None)
# A lower bound of a divergence is taken for the whole of it only where so much of the probability is told apart.
_TOLD_ENOUGH = 0.75


def divergence_limit(limits: Mapping[str, float | None]) -> float:
    """Accepted nats a token: what the baseline writes then has as much more perplexity as is accepted of a text."""
    accepted = limits.get("perplexity")
    return math.inf if accepted is None else math.log1p(accepted)


def continued_alike(baseline: Run, candidate: Run) -> bool:
    """Whether both were asked to continue the same texts."""
    return _texts(baseline) == _texts(candidate)


def divergence_comparable(baseline: Run, candidate: Run) -> bool:
    """Whether both runs have distributions over the same texts, fed alike."""
    fed = [pick(run.config, "quality.chunk") for run in (baseline, candidate)]
    if fed[0] != fed[1] or not continued_alike(baseline, candidate):
        return False
    return not (baseline.next_tokens.empty or candidate.next_tokens.empty)


def divergence_loss(baseline: Run, candidate: Run, limit: float) -> QualityLoss | None:
    """The candidate's divergence from the baseline, in nats a token; None where the two cannot be compared.

    `why` also says it where a bound that is too weak leaves a small divergence inconclusive. One text has no
    interval: 0 to infinity.
    """
    if not divergence_comparable(baseline, candidate):
        return None
    apart = distance(baseline.next_tokens, candidate.next_tokens)
    if apart is None:
        return None
    interval = apart.interval or (0.0, math.inf)
    word, why = verdict_on(interval, limit), why_not_seen(baseline, candidate, DIVERGENCE)
    if not why and apart.nats == 0 and kv_differs(baseline, candidate):
        why = THE_SAME
    if why:
        word = NOT_SEEN
    elif word == "safe" and apart.told < _TOLD_ENOUGH:
        word = "inconclusive"
        why = f"the engine tells {100 * apart.told:.0f} % of the probability, so its bound excludes no loss"
    return QualityLoss(DIVERGENCE, 0.0, apart.nats, apart.nats, interval, limit, apart.positions, word, why)


def _texts(run: Run) -> tuple[Any, ...]:
    return pick(run.config, "quality.agreement"), run.config.get("seed")
