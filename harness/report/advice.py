"""Advice in words: the headline, how sure it is, a table of settings, what was left out and why, what to do next."""

from collections.abc import Sequence
from dataclasses import dataclass

from harness.compare.advice import Advice
from harness.compare.groups import Figure
from harness.compare.next_steps import Step, next_steps
from harness.compare.quality import QualityLoss
from harness.compare.settings import COST, Setting, costs_of
from harness.compare.statistics import Verdict
from harness.metrics.slo import limits_of, percentile_limits_of
from harness.report.advice_words import (
    beyond_accepted,
    kept,
    limit_name,
    loss_cell,
    measured_value,
    missed,
    risk,
    saved,
    share_words,
)
from harness.report.values import MISSING, Amount, listed, money, number, signed

_SHORT = {"perplexity": "PPL", "RAG answers": "RAG", "RAG options": "RAG\noptions", "summary facts": "facts"}
_MOST_NAMED = 3
_FURTHER_COSTS = {"per_query": "query", "per_user_hour": "user-hour"}


@dataclass(frozen=True)
class AdviceRow:
    """One setting that may be taken. cells: under the headings. best: whether it is the advised one. runs: ids."""

    label: str
    cells: list[Amount]
    best: bool
    runs: list[str]


@dataclass(frozen=True)
class AdviceSection:
    """Everything that is shown, as plain text. short: the headings of a terminal, "" of a column that it leaves out.
    excluded: setting and reasons. runs: ids of its runs by setting, of those left out too.
    """

    title: str
    headline: str
    sentences: list[str]
    headings: list[str]
    short: list[str]
    rows: list[AdviceRow]
    excluded: list[tuple[str, list[str]]]
    steps: list[Step]
    runs: dict[str, list[str]]

    @property
    def left_out(self) -> list[str]:
        """Ids of the runs of the settings that were left out."""
        return [run for label, _ in self.excluded for run in self.runs[label]]


def advice_section(advice: Advice) -> AdviceSection:
    """Put advice into words."""
    headings = _headings(advice)
    runs = {label: [run.id for run in group] for label, group in advice.asked.groups.items()}
    return AdviceSection(
        title=f"What to take: {advice.asked.workload}",
        headline=_headline(advice),
        sentences=_sentences(advice),
        headings=[long for long, _ in headings],
        short=[short for _, short in headings],
        rows=[
            AdviceRow(one.label, _cells(advice, one), one is advice.best, runs[one.label])
            for one in advice.ranked
        ],
        excluded=[(one.label, reasons(one)) for one in advice.excluded],
        steps=next_steps(advice),
        runs=runs,
    )


def reasons(setting: Setting) -> list[str]:
    """Why a setting may not be taken, one sentence each."""
    found = []
    if setting.rate is None:
        found.append(f"no run of it counts: {'; '.join(setting.problems).rstrip('.') or 'no token came'}")
    found += [missed(limit) for limit in setting.missed]
    found += [beyond_accepted(one) for one in setting.lost]
    return found


def _headline(advice: Advice) -> str:
    best = advice.best
    conditions = _conditions(advice)
    if best is None:
        return f"No setting may be taken{f': none keeps {conditions}' if conditions else ': no run counts'}."
    what, unjudged = _amount(advice, advice.figure(best)), _unjudged(advice)
    if len(advice.ranked) == 1:
        left = (
            f"the only one of {len(advice.excluded) + 1} that may be taken"
            if advice.excluded
            else "the only setting"
        )
        return f"{best.label}: {what}; {left}{unjudged}."
    word = "cheapest" if advice.by == COST else "fastest"
    among = f" of {len(advice.ranked)} that keep {conditions}" if conditions else f" of {len(advice.ranked)}"
    return f"{best.label}: {what}, the {word}{among}{unjudged}."


def _conditions(advice: Advice) -> str:
    """What every ranked setting is known to keep; where none is ranked, what the others do not."""
    if advice.ranked:
        slo = all(one.held for one in advice.ranked)
        telling = any(loss.telling for one in advice.ranked for loss in one.losses)
        quality = telling and all(one.judged for one in advice.ranked)
    else:
        slo = any(one.held for one in advice.excluded)
        quality = any(one.lost for one in advice.excluded)
    return listed([*(["the SLO"] if slo else []), *(["the quality limit"] if quality else [])])


def _unjudged(advice: Advice) -> str:
    """; quality not measured for int8: none of it is known."""
    labels = [one.label for one in advice.ranked if not one.judged]
    if not labels:
        return ""
    if len(labels) == len(advice.ranked) > 1:
        return "; quality not measured for any"
    named = listed(labels) if len(labels) <= _MOST_NAMED else f"{len(labels)} of {len(advice.ranked)}"
    return f"; quality not measured for {named}"


def _sentences(advice: Advice) -> list[str]:
    best, found = advice.best, []
    if best is not None and advice.by == COST:
        further = [
            f"{money(figure.middle)} {advice.currency} a {what}"
            for name, what in _FURTHER_COSTS.items()
            if (figure := best.cost.get(name))
        ]
        found.append(f"That is {listed(further)}." if further else "")
    if best is not None and advice.verdict is not None:
        found.append(_against(advice, best, advice.ranked[1], advice.verdict))
    if advice.alike:
        found.append(f"Within 3 % of it: {listed(list(advice.alike))}.")
    second = advice.ranked[1].label if len(advice.ranked) > 1 else None
    if best is not None and best.saving is not None and best.plain not in (None, second):
        found.append(f"{saved(best.saving)} against the plain setting, {best.plain}.")
    if best is not None and best.held:
        found.append(f"It keeps the SLO: {listed([kept(limit) for limit in best.held])}.")
    if best is not None and best.losses:
        told = [risk(one) for one in best.losses]
        found.append(f"Quality against {listed(list(best.references))}: {'; '.join(told)}.")
    if best is not None and not best.judged:
        found.append(
            "Its quality was not measured against an exact KV cache, so nothing is known of what it loses."
        )
    found += [_why_by_rate(advice), _why_no_slo(advice)]
    for one in advice.ranked:
        if one.left_out:
            found.append(
                f"{one.left_out} of {one.left_out + len(one.runs)} runs of {one.label} do not count: "
                f"{'; '.join(one.problems).rstrip('.')}."
            )
    if disturbed := sum(one.disturbed for one in advice.ranked):
        ranked = sum(len(one.runs) for one in advice.ranked)
        found.append(
            f"{disturbed} of {ranked} ranked runs were made while something else used the machine or its own speed "
            "changed: compare repeats, not single runs."
        )
    if advice.asked.left_out:
        runs = f"{advice.asked.left_out} {'run' if advice.asked.left_out == 1 else 'runs'}"
        found.append(
            f"{runs} left out: not every setting was asked the same requests (another seed or workload)."
        )
    return [sentence for sentence in found if sentence]


def _why_by_rate(advice: Advice) -> str:
    """Why settings are not ranked by what they cost; "" where they are, or none is ranked."""
    if advice.by == COST or not advice.ranked:
        return ""
    runs = [run for one in (*advice.ranked, *advice.excluded) for run in one.runs]
    costs = [costs_of(run, advice.terms) for run in runs]
    currencies = sorted({str(cost["currency"]) for cost in costs if cost})
    if not all(costs):
        why = "No price for all (hardware.price_per_hour)"
    elif len(currencies) > 1:
        why = f"The prices are in {listed(currencies)}"
    else:
        why = "Not every run has a cost"
    return f"{why}, so this ranks by tokens per second of the machine."


def _why_no_slo(advice: Advice) -> str:
    """Why latency was not judged; "" where it was."""
    settings = (*advice.ranked, *advice.excluded)
    if any(one.held for one in settings):
        return ""
    if _limited(advice):
        what = "has a window in which requests were measured" if advice.ranked else "counts"
        return f"No run {what}, so the SLO was not judged."
    recorded = [run.config.get("slo") for runs in advice.asked.groups.values() for run in runs]
    if any(one != recorded[0] for one in recorded):
        return "The runs were made with different SLOs and none was given for all, so latency was not judged."
    return "No SLO was given, so latency was not asked about."


def _against(advice: Advice, best: Setting, second: Setting, verdict: Verdict) -> str:
    ratio = verdict.ratio
    more = "cheaper" if advice.by == COST else "more tokens/s"
    theirs = _amount(advice, advice.figure(second))
    found = f"{share_words(_gain(advice, ratio.value))} {more} than {second.label} ({theirs})"
    if verdict.p is not None and ratio.low is not None and ratio.high is not None:
        low, high = sorted((_gain(advice, ratio.low), _gain(advice, ratio.high)))
        found += f", 95 % interval {number(100 * low)} to {share_words(high)}"
    if verdict.word == "better":
        return f"{found}: sure ({verdict.why})."
    if verdict.word == "same":
        return f"{found}: no difference that matters ({verdict.why})."
    return f"{found}: not decided ({verdict.why})."


def _gain(advice: Advice, ratio: float) -> float:
    """What a ratio best / next means: how much cheaper, or how much faster."""
    return 1 - ratio if advice.by == COST else ratio - 1


def _headings(advice: Advice) -> list[tuple[str, str]]:
    """Of each column as a page and as a terminal has it; "": left out there, for want of room."""
    cost = advice.by == COST
    found = [(f"{advice.currency} a million tokens", f"{advice.currency}/M\ntokens")] if cost else []
    found += [("Tokens/s", "" if cost else "tokens/s"), ("To the best", "to the\nbest"), ("Runs", "runs")]
    found += [("Saves", "saves")] if any(one.saving for one in advice.ranked) else []
    limits = [limit_name(limit) for limit in advice.ranked[0].held] if advice.ranked else []
    found += [(f"{name[:1].upper()}{name[1:]}", name.replace(" ", "\n", 1)) for name in limits]
    found += [(label[:1].upper() + label[1:], _SHORT.get(label, label)) for label in _figures(advice)]
    return found


def _cells(advice: Advice, setting: Setting) -> list[Amount]:
    best, figure, rate = advice.ranked[0], advice.figure(setting).middle, setting.rate
    share = figure / advice.figure(best).middle - 1
    found = [Amount(money(figure), figure)] if advice.by == COST else []
    found.append(Amount(number(rate.middle), rate.middle) if rate else Amount(MISSING, None))
    found.append(Amount("best" if setting is best else f"{signed(100 * share, 0)} %", share))
    found.append(Amount(str(len(setting.runs)), len(setting.runs)))
    if any(one.saving for one in advice.ranked):
        saving = setting.saving
        found.append(Amount(share_words(saving.share), saving.share) if saving else Amount(MISSING, None))
    found += [Amount(measured_value(limit), limit.value) for limit in setting.held]
    losses = {one.figure.label: one for one in setting.losses}
    found += [_loss(losses.get(label), setting) for label in _figures(advice)]
    return found


def _loss(one: QualityLoss | None, setting: Setting) -> Amount:
    """By what is lost; of a setting that is exact nothing is."""
    text = loss_cell(one, setting)
    if one is None:
        return Amount(text, None if text == MISSING else 0.0)
    return Amount(text, one.lost if one.telling else None)


def _figures(advice: Advice) -> list[str]:
    """Labels of the figures of quality of which a ranked setting has a loss."""
    return list(dict.fromkeys(one.figure.label for setting in advice.ranked for one in setting.losses))


def _amount(advice: Advice, figure: Figure) -> str:
    if advice.by == COST:
        return f"{money(figure.middle)} {advice.currency} a million tokens"
    return f"{number(figure.middle)} tokens/s"


def _limited(advice: Advice) -> bool:
    return bool(limits_of(advice.terms.slo) or percentile_limits_of(advice.terms.slo))


def sections(found: Sequence[Advice]) -> list[AdviceSection]:
    """All of them, in order."""
    return [advice_section(one) for one in found]
