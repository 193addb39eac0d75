"""One setting as advice sees it: what it costs, whether it keeps the limits, what it loses, and what it saves."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from harness.compare.asked import Asked
from harness.compare.baselines import baseline_of, same_load
from harness.compare.groups import Figure
from harness.compare.losses import losses_of
from harness.compare.quality import QualityLoss
from harness.compare.saving import Saving, saving
from harness.compare.slo_held import Held, held
from harness.metrics.cost import concurrent_users, cost_summary
from harness.metrics.slo import PERCENTILE_LIMITS, SloOptions, limits_of, percentile_limits_of
from harness.records.paths import pick
from harness.records.reader import Run
from harness.records.spoilt import spoiling

RATE = "output_tokens_per_s"
COST = "per_million_output_tokens"
COSTS = (COST, "per_query", "per_user_hour")
# Failed checks that do not take a run out: too few requests for a percentile are told with the limit itself, and
# other work on the machine or a change of its speed is what repeats, which take turns, are for.
_DISTURBED = ("quiet_machine", "same_pace")
_COUNTS_ALL_THE_SAME = ("tail_samples", *_DISTURBED)
_FAILED_REQUESTS = "no_errors"


@dataclass(frozen=True)
class Terms:
    """What is asked of a setting.

    attainment: share of requests that must keep the SLO's limits of single ones. losses: the accepted loss by figure
    of quality (the last part of its key), as a share of 1; None: no limit. price_per_hour, currency: None: as the run
    was recorded.
    """

    slo: SloOptions | None
    attainment: float
    losses: Mapping[str, float | None]
    price_per_hour: float | None = None
    currency: str | None = None


@dataclass(frozen=True)
class Setting:
    """runs: those that count, by id. problems: why the others do not. cost: by COSTS, {} without a price.

    left_out: how many runs do not. held: the limits of the SLO, also of runs in which
    requests failed: of such a run the latencies are known, and failed ones were infinitely slow. losses: of quality,
    against the settings `references` that hold everything exactly. judged: whether its quality is known: it is exact
    itself, it was measured by something that tells, or nothing was asked of it.
    saving: of cost, against the same engine at the same load with an exact KV cache, whose name is `plain`.
    """

    label: str
    runs: tuple[Run, ...]
    problems: tuple[str, ...]
    left_out: int
    rate: Figure | None
    cost: Mapping[str, Figure]
    held: tuple[Held, ...]
    losses: tuple[QualityLoss, ...]
    references: tuple[str, ...]
    judged: bool
    plain: str | None
    saving: Saving | None

    @property
    def reference(self) -> str | None:
        """The first of the references."""
        return self.references[0] if self.references else None

    @property
    def disturbed(self) -> int:
        """How many of its runs were made while something else used the machine, or its own speed changed."""
        return sum(
            any(check["check"] in _DISTURBED and check["ok"] is False for check in run.validity)
            for run in self.runs
        )

    @property
    def missed(self) -> tuple[Held, ...]:
        """Limits of the SLO that the median run does not keep."""
        return tuple(limit for limit in self.held if not limit.met)

    @property
    def lost(self) -> tuple[QualityLoss, ...]:
        """What it loses beyond the limit, be it sure or the likeliest."""
        return tuple(one for one in self.losses if one.telling and one.lost > one.limit)

    @property
    def eligible(self) -> bool:
        """Whether it may be advised."""
        return self.rate is not None and not self.missed and not self.lost


def settings_of(found: Asked, terms: Terms) -> list[Setting]:
    """Every setting of what was asked."""
    labels = {run.id: label for label, runs in found.groups.items() for run in runs}
    complete = [run for runs in found.groups.values() for run in runs if run.status == "complete"]
    everything = sorted(complete, key=lambda run: run.id)
    sound = {label: _sound(runs, terms) for label, runs in found.groups.items()}
    return [_setting(label, runs, sound, everything, labels, terms) for label, runs in found.groups.items()]


def costs_of(run: Run, terms: Terms) -> dict[str, Any]:
    """What `cost_summary` says of the run at the price of the terms, else at its own; {} without a price."""
    price, currency = terms.price_per_hour, terms.currency
    if price is None:
        price = pick(run.config, "hardware.price_per_hour")
    return cost_summary(
        run.summary,
        price,
        str(currency or pick(run.config, "hardware.currency") or ""),
        concurrent_users(run.window, run.summary),
    )


def _setting(
    label: str,
    runs: Sequence[Run],
    sound: Mapping[str, tuple[tuple[Run, ...], tuple[str, ...]]],
    everything: Sequence[Run],
    labels: Mapping[str, str],
    terms: Terms,
) -> Setting:
    ours, problems = sound[label]
    complete = [run for run in runs if run.status == "complete"]
    losses, references, judged = losses_of(complete, everything, terms.losses)
    plain = next(
        (
            one
            for run in ours
            if (one := baseline_of(run, [other for other in everything if same_load(run, other)]))
        ),
        None,
    )
    saved = saving(_prices(sound[labels[plain.id]][0]), _prices(ours)) if plain is not None else None
    return Setting(
        label=label,
        runs=ours,
        problems=problems,
        left_out=len(runs) - len(ours),
        rate=_figure([value for run in ours if (value := pick(run.summary, RATE))]),
        cost=_costs(ours, terms),
        held=held(_answering(complete, terms), terms.slo, terms.attainment),
        losses=losses,
        references=tuple(dict.fromkeys(labels[reference.id] for reference in references)),
        judged=judged,
        plain=labels[plain.id] if plain is not None else None,
        saving=saved,
    )


def _sound(runs: Sequence[Run], terms: Terms) -> tuple[tuple[Run, ...], tuple[str, ...]]:
    """The runs whose figures count, and what is wrong with the others, each once, with the count of runs."""
    paths = _limited(terms)
    kept, problems = [], []
    for run in runs:
        if run.status != "complete":
            problems.append(f"{run.status}, {run.reason or 'no reason was recorded'}")
        elif wrong := spoiling(run, paths, _COUNTS_ALL_THE_SAME):
            problems.append("; ".join(wrong))
        else:
            kept.append(run)
    told = [f"{text} ({count} runs)" if count > 1 else text for text, count in Counter(problems).items()]
    return tuple(kept), tuple(told)


def _answering(runs: Sequence[Run], terms: Terms) -> list[Run]:
    """Those whose latencies are known: failed requests, which spoil other figures, count as infinitely slow."""
    aside = (*_COUNTS_ALL_THE_SAME, _FAILED_REQUESTS)
    return [run for run in runs if not spoiling(run, _limited(terms), aside)]


def _limited(terms: Terms) -> list[str]:
    """Keys of the rate, and of every latency that has a limit."""
    percentiles = [
        f"{PERCENTILE_LIMITS[key][0]}.{key.split('_')[1]}" for key in percentile_limits_of(terms.slo)
    ]
    return [RATE, *limits_of(terms.slo), *percentiles]


def _prices(runs: Sequence[Run]) -> list[float]:
    """What a token costs relative to others on the same machine: the inverse of the rate."""
    return [1 / rate for run in runs if (rate := pick(run.summary, RATE))]


def _costs(runs: Sequence[Run], terms: Terms) -> dict[str, Figure]:
    each = [costs_of(run, terms) for run in runs]
    found = {name: _figure([value for cost in each if (value := cost.get(name))]) for name in COSTS}
    return {name: figure for name, figure in found.items() if figure is not None}


def _figure(values: Sequence[float]) -> Figure | None:
    return Figure(median(values), min(values), max(values), len(values)) if values else None
