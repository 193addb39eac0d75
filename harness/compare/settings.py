"""One setting as advice sees it: what it costs, whether it keeps the limits, what it loses, and what it saves."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from harness.compare.asked import Asked
from harness.compare.baselines import full_weights, kv_bits
from harness.compare.groups import Figure
from harness.compare.quality import QualityLoss, baseline_of, loss, weights_baseline_of
from harness.compare.saving import Saving, saving
from harness.compare.slo_held import Held, held
from harness.metrics.cost import concurrent_users, cost_summary
from harness.metrics.quality_figures import QUALITY_FIGURES
from harness.metrics.slo import PERCENTILE_LIMITS, SloOptions, limits_of, percentile_limits_of
from harness.records.paths import pick
from harness.records.reader import Run
from harness.records.spoilt import spoiling

RATE = "output_tokens_per_s"
COST = "per_million_output_tokens"
COSTS = (COST, "per_query", "per_user_hour")
# Failed checks that do not take a run out: too few requests for a percentile are told with the limit itself, and
# other work on the machine is what repeats are for.
_BUSY = "quiet_machine"
_COUNTS_ALL_THE_SAME = ("tail_samples", _BUSY)


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

    held: the limits of the SLO. losses: of quality, against the setting `reference` that holds everything exactly.
    judged: whether its quality is known: it is exact itself, it was measured, or nothing was asked of it.
    saving: of cost, against the same engine at the same load with an exact KV cache, whose name is `plain`.
    """

    label: str
    runs: tuple[Run, ...]
    problems: tuple[str, ...]
    rate: Figure | None
    cost: Mapping[str, Figure]
    held: tuple[Held, ...]
    losses: tuple[QualityLoss, ...]
    reference: str | None
    judged: bool
    plain: str | None
    saving: Saving | None

    @property
    def busy(self) -> int:
        """How many of its runs were made while something else used the machine."""
        return sum(
            any(check["check"] == _BUSY and check["ok"] is False for check in run.validity)
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
    losses, reference, judged = _quality(ours, everything, terms)
    plain = next((one for run in ours if (one := baseline_of(run, _beside(run, everything)))), None)
    saved = saving(_prices(sound[labels[plain.id]][0]), _prices(ours)) if plain is not None else None
    return Setting(
        label=label,
        runs=ours,
        problems=problems,
        rate=_figure([value for run in ours if (value := pick(run.summary, RATE))]),
        cost=_costs(ours, terms),
        held=held(ours, terms.slo, terms.attainment),
        losses=losses,
        reference=labels[reference.id] if reference is not None else None,
        judged=judged,
        plain=labels[plain.id] if plain is not None else None,
        saving=saved,
    )


def _sound(runs: Sequence[Run], terms: Terms) -> tuple[tuple[Run, ...], tuple[str, ...]]:
    """The runs whose figures count, and what is wrong with the others, each once."""
    paths = [RATE, *limits_of(terms.slo)]
    paths += [f"{PERCENTILE_LIMITS[key][0]}.{key.split('_')[1]}" for key in percentile_limits_of(terms.slo)]
    kept, problems = [], []
    for run in runs:
        if run.status != "complete":
            problems.append(f"{run.status}, {run.reason or 'no reason was recorded'}")
        elif wrong := spoiling(run, paths, _COUNTS_ALL_THE_SAME):
            problems.append("; ".join(wrong))
        else:
            kept.append(run)
    return tuple(kept), tuple(dict.fromkeys(problems))


def _quality(
    runs: Sequence[Run], everything: Sequence[Run], terms: Terms
) -> tuple[tuple[QualityLoss, ...], Run | None, bool]:
    """Losses against the exact setting, that setting, and whether quality is known."""
    limits = {name: limit for name, limit in terms.losses.items() if limit is not None}
    if not runs or not limits:
        return (), None, True
    reference = _exact(runs[0], everything)
    if reference is None:  # exact itself, or there is nothing to hold it against
        return (), None, bool(kv_bits(runs[0])) and full_weights(runs[0])
    found = []
    for figure in QUALITY_FIGURES:
        name = figure.path.rsplit(".", 1)[-1]
        if name not in limits:
            continue
        # A setting may have been measured again for its quality: only those runs are held against each other.
        with_it = [run for run in everything if pick(run.summary, figure.path) is not None]
        pairs = ((run, _exact(run, with_it)) for run in runs if run in with_it)
        losses = (loss(base, run, figure, limits[name]) for run, base in pairs if base is not None)
        if (one := next((one for one in losses if one is not None), None)) is not None:
            found.append(one)
    return tuple(found), reference, any(one.telling for one in found)


def _exact(run: Run, everything: Sequence[Run]) -> Run | None:
    """The same engine with an exact KV cache and the model's own weights; None for itself, or if it was not run."""
    cache = baseline_of(run, everything)
    weights = weights_baseline_of(cache or run, everything)
    return weights or cache


def _beside(run: Run, others: Sequence[Run]) -> list[Run]:
    """Those under the same load on the same machine."""
    return [other for other in others if _where(other) == _where(run)]


def _where(run: Run) -> tuple[Any, ...]:
    machine = pick(run.fingerprint, "machine") or {}
    return run.config.get("load"), machine.get("cpu"), machine.get("cores"), machine.get("gpus")


def _prices(runs: Sequence[Run]) -> list[float]:
    """What a token costs relative to others on the same machine: the inverse of the rate."""
    return [1 / rate for run in runs if (rate := pick(run.summary, RATE))]


def _costs(runs: Sequence[Run], terms: Terms) -> dict[str, Figure]:
    each = [costs_of(run, terms) for run in runs]
    found = {name: _figure([value for cost in each if (value := cost.get(name))]) for name in COSTS}
    return {name: figure for name, figure in found.items() if figure is not None}


def _figure(values: Sequence[float]) -> Figure | None:
    return Figure(median(values), min(values), max(values), len(values)) if values else None
