"""The parts of advice in words: limits, losses and savings."""

import math

from harness.compare.divergence import DIVERGENCE
from harness.compare.quality import QualityLoss
from harness.compare.saving import Saving
from harness.compare.seen import NOT_SEEN
from harness.compare.settings import Setting
from harness.compare.slo_held import SHARE, Held
from harness.report.values import MISSING, duration, number, signed

_WORST_WORDS = {"loses": "surely", "inconclusive": "likely"}


def saved(saving: Saving) -> str:
    """What is saved, with its interval."""
    size = share_words(abs(saving.share))
    what = f"It saves {size}" if saving.share >= 0 else f"It costs {size} more"
    if saving.low is None or saving.high is None:
        return f"{what} (one run a side)"
    sign = 1 if saving.share >= 0 else -1
    low, high = sorted((sign * saving.low, sign * saving.high))
    return f"{what} ({saving.interval} {number(100 * low)} to {share_words(high)})"


def kept(limit: Held) -> str:
    """A limit that is kept."""
    few = f", from {limit.samples} requests" if limit.samples < limit.needed else ""
    apart = f", {limit.runs_met} of {limit.runs} runs" if 0 < limit.runs_met < limit.runs else ""
    if limit.key == SHARE:
        return f"{measured_value(limit)} of requests {limit_name(limit)}, {limit_value(limit)} needed{few}{apart}"
    return f"{limit_name(limit)} {measured_value(limit)} of {limit_value(limit)}{few}{apart}"


def missed(limit: Held) -> str:
    """A limit that is not kept, and by how much."""
    beyond = limit.beyond
    if limit.key == SHARE:
        return f"{measured_value(limit)} of requests keep every limit, {limit_value(limit)} are needed"
    if beyond is None:
        return f"{limit_name(limit)} is a failed request (limit {limit_value(limit)})"
    return f"{limit_name(limit)} {measured_value(limit)} misses {limit_value(limit)} by {share_words(beyond)}"


def beyond_accepted(one: QualityLoss) -> str:
    """A loss beyond what is accepted."""
    sure = _WORST_WORDS[one.verdict]
    accepted = amount_lost(one, one.limit)
    return f"{sure} loses {amount_lost(one, one.lost)} of {one.figure.label}, accepted are {accepted}"


def risk(one: QualityLoss) -> str:
    """A loss within what is accepted, and the largest that is not excluded."""
    if one.verdict == "uninformative":
        return f"{one.figure.label} is uninformative (the exact setting is not above chance)"
    if one.verdict == NOT_SEEN:
        return f"{one.figure.label} is not judged ({one.why})"
    more = f"{one.verdict}: {one.why}" if one.why else one.verdict
    amount = amount_lost(one, abs(one.lost))
    found = f"{amount} worse" if one.lost > 0 else f"{amount} better" if one.lost < 0 else "unchanged"
    if not math.isfinite(one.most_lost):
        return f"{one.figure.label} {found}, how much worse it may be is unbounded ({more})"
    most = amount_lost(one, max(0.0, one.most_lost))
    return f"{one.figure.label} {found}, at most {most} worse ({more})"


def amount_lost(one: QualityLoss, share: float) -> str:
    """Perplexity in per cent of itself, shares of right answers in points, a divergence in nats."""
    if one.figure is DIVERGENCE:
        return f"{number(share)} nats"
    return f"{number(100 * share)} {'%' if one.figure.chance is None else 'points'}"


def limit_name(limit: Held) -> str:
    """A limit: TTFT p95."""
    if limit.key == SHARE:
        return "within every limit"
    return limit.key.removesuffix("_ms").replace("_", " ").upper().replace(" P", " p")


def measured_value(limit: Held) -> str:
    """What was measured."""
    if limit.value is None:
        return MISSING
    return f"{100 * limit.value:.1f} %" if limit.key == SHARE else duration(limit.value)


def limit_value(limit: Held) -> str:
    """What is allowed."""
    return f"{100 * limit.limit:g} %" if limit.key == SHARE else duration(limit.limit)


def loss_cell(one: QualityLoss | None, setting: Setting) -> str:
    """A loss in a table, as the change of the figure: perplexity grows, right answers become fewer."""
    if one is None:
        return "exact" if setting.judged and setting.reference is None else MISSING
    if not one.telling:
        return one.verdict
    if one.figure is DIVERGENCE:
        return f"{one.lost:.3f} nats"
    if one.figure.chance is None:
        return f"{signed(100 * one.lost)} %"
    return f"{signed(-100 * one.lost)} pt"


def share_words(share: float) -> str:
    """A share of 1 in per cent, three digits."""
    return f"{number(100 * share)} %"
