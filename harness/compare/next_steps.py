"""What to measure next, where the runs at hand cannot decide: each step with the commands to type."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from harness.compare.advice import Advice
from harness.compare.again import both, command, overrides_of, written
from harness.compare.conf_files import exists
from harness.compare.more_items import size_option
from harness.compare.quality import QualityLoss
from harness.compare.settings import Setting
from harness.compare.slo_held import Held
from harness.compare.statistics import FEWEST_RUNS
from harness.metrics.slo import SloOptions, limits_of, percentile_limits_of
from harness.records.paths import pick

_MOST = 4
# What of a workload's own task tells more than perplexity does.
_TASKS = {"rag": "rag", "summarization": "summary", "chat": "reasoning"}
_MOST_TIMES = 16


@dataclass(frozen=True, slots=True)
class Step:
    """why: one sentence. commands: to type, in this order; () where only a person can choose."""

    why: str
    commands: tuple[str, ...] = ()


def next_steps(advice: Advice) -> list[Step]:
    """The most telling first, at most a handful."""
    best = advice.best
    found = _without_a_choice(advice) if best is None else _with_a_choice(advice, best)
    return list(found)[:_MOST]


def _without_a_choice(advice: Advice) -> Iterator[Step]:
    unsound = [one for one in advice.excluded if one.rate is None]
    late = [one for one in advice.excluded if one.missed and not one.lost]
    if late:
        nearest = min(late, key=lambda one: (max(_beyond(limit) for limit in one.missed), one.label))
        yield Step(
            f"{nearest.label} misses the SLO by least: search the load at which it keeps it.",
            (_search(nearest, advice.terms.slo),),
        )
    if any(one.lost for one in advice.excluded):
        yield Step(
            "Keep more of the past or more bits: every setting that is fast enough loses too much quality."
        )
    for one in unsound[:1]:
        runs = advice.asked.groups[one.label]
        what = next(
            (
                str(check["advice"])
                for run in runs
                for check in run.validity
                if check["ok"] is False and check.get("advice")
            ),
            "The reason it failed is in its record.",
        )
        yield Step(f"{one.label} has no run that counts. {what}", (command(overrides_of(runs[0])),))


def _with_a_choice(advice: Advice, best: Setting) -> Iterator[Step]:
    verdict = advice.verdict
    if verdict is not None and verdict.word == "inconclusive":
        second = advice.ranked[1]
        fewest = min(len(best.runs), len(second.runs))
        repeats = FEWEST_RUNS if fewest < FEWEST_RUNS else 2 * fewest
        yield Step(
            f"Whether {best.label} is really ahead of {second.label} ({verdict.why}):",
            tuple(both(best.runs[0], second.runs[0], f"repeats={repeats}")),
        )
    yield from _slo(best)
    yield from _quality(advice, best)
    if best.held:
        yield Step("How much load it takes within the SLO:", (_search(best, advice.terms.slo),))


def _slo(best: Setting) -> Iterator[Step]:
    unsure = [limit for limit in best.held if not limit.sure]
    few = max((limit.needed for limit in unsure if limit.samples < limit.needed), default=0)
    if few:
        yield Step(
            f"Whether {best.label} keeps the SLO: a verdict on it takes {few} requests.",
            (command(_again(best) | {"load.requests": str(few)}),),
        )
    elif unsure:
        yield Step(
            f"Whether {best.label} keeps the SLO: its runs disagree.",
            (command(_again(best), f"repeats={2 * max(FEWEST_RUNS, len(best.runs))}"),),
        )


def _quality(advice: Advice, best: Setting) -> Iterator[Step]:
    workload = advice.asked.workload
    if not best.judged:
        task = _TASKS.get(workload, "recall")
        known = task if exists(f"quality/{task}.yaml") else "recall"
        useless = {one.figure.task for one in best.losses if not one.telling}
        tasks = [one for one in dict.fromkeys(("perplexity", known, "recall")) if one not in useless][:2]
        sides = [one for one in (_named(advice, best.reference), best) if one is not None]
        with_an_exact = "" if best.reference else ", and the same with an exact KV cache"
        wanted = {"quality": f"[{','.join(tasks)}]"}
        if tasks:
            yield Step(
                f"What {best.label} loses in quality{with_an_exact}:",
                tuple(command(_without_quality(one) | wanted) for one in sides),
            )
    for one in best.losses:
        if one.verdict == "inconclusive" and not one.why:  # else more items would not help
            yield _more_items(advice, best, one)
            break
    for one in best.losses:
        if one.verdict == "uninformative":
            yield Step(
                f"{one.figure.label} says nothing here: the exact setting is not above chance. "
                f"Take a task that this model can do, or a larger model, instead of quality={one.figure.task}."
            )
            break


def _more_items(advice: Advice, best: Setting, one: QualityLoss) -> Step:
    """As many more as the interval needs to fit into what is left of the limit: its width falls with the root."""
    left = one.limit - one.lost
    wanted = (one.detectable / left) ** 2 if left > 0 else math.inf
    times = max(2, math.ceil(min(_MOST_TIMES, wanted)))  # one window tells nothing: its interval has no end
    size = size_option(best.runs[0], one.figure.task)
    more = {} if size is None else {size[0]: str(times * size[1])}
    sides = [side for side in (_named(advice, best.reference), best) if side is not None]
    items = "one item" if one.items == 1 else f"{one.items} items"
    return Step(
        f"Whether {best.label} loses more {one.figure.label} than is accepted: {items} cannot tell.",
        tuple(command(_again(side) | more) for side in sides),
    )


def _search(setting: Setting, slo: SloOptions | None) -> str:
    run = setting.runs[0]
    rate, concurrency = pick(run.config, "load.rate"), pick(run.config, "load.concurrency")
    load = {"load": "search"}
    if rate:
        load["load.first"] = written(rate)
    else:
        load |= {"load.over": "concurrency", "load.first": written(concurrency or 1)}
    limits = {**limits_of(slo), **percentile_limits_of(slo)}
    wanted = {f"slo.{key}": f"{limit:g}" for key, limit in limits.items()}
    return command(overrides_of(run, without=("load", "slo", "quality")) | load | wanted)


def _again(setting: Setting) -> dict[str, str]:
    return overrides_of(setting.runs[0])


def _without_quality(setting: Setting) -> dict[str, str]:
    return overrides_of(setting.runs[0], without=("quality",))


def _named(advice: Advice, label: str | None) -> Setting | None:
    settings = (*advice.ranked, *advice.excluded)
    return next((one for one in settings if one.label == label and one.runs), None)


def _beyond(limit: Held) -> float:
    beyond = limit.beyond
    return math.inf if beyond is None else beyond
