"""From the options to runs and terms; what cannot be judged together becomes one sentence."""

from pathlib import Path

from harness.advise.options import AdviseOptions
from harness.compare.advice import Advice, advise
from harness.compare.asked import asked, subject
from harness.compare.settings import Terms, costs_of
from harness.core.errors import RecordError, UsageError
from harness.metrics.slo import limits_of, percentile_limits_of
from harness.records.reader import Run, find_runs, latest_runs
from harness.report.labels import setting_labels


def advice_for(options: AdviseOptions) -> Advice:
    """Read the runs and judge them.

    Raises UsageError for a limit or price that cannot be, and where the runs were asked different things; RecordError
    where there is no run.
    """
    terms = terms_of(options)
    results = Path(options.results_dir)
    runs = find_runs(options.runs, results) if options.runs else latest_runs(results)
    chosen = _of_one_workload(runs, options.workload)
    if all(run.status == "failed" for run in chosen):
        raise RecordError(
            f"None of these {len(chosen)} runs measured anything, so there is nothing to advise. "
            "Their reasons: python -m harness.report action=list."
        )
    (found,) = asked(chosen, setting_labels(chosen))
    if not found.common:
        raise UsageError(
            f"runs: these {len(chosen)} runs of {found.workload} were asked different requests, so they cannot be "
            "ranked. Name runs of one workload, its options and seeds alike: 'runs=[ID,ID]'."
        )
    _one_currency(chosen, terms)
    return advise(found, terms)


def terms_of(options: AdviseOptions) -> Terms:
    """Raises UsageError for values that cannot be."""
    for key, limit in {**limits_of(options.slo), **percentile_limits_of(options.slo)}.items():
        if not 0 < limit < float("inf"):
            raise UsageError(
                f"slo.{key}={limit:g}: a limit is a number of milliseconds above 0, or null for none."
            )
    if not 0 < options.attainment <= 1:
        raise UsageError(f"attainment={options.attainment:g}: a share of requests, above 0 and at most 1.")
    losses = {name: limit for name, limit in vars(options.loss).items() if name != "name"}
    for name, accepted in losses.items():
        if accepted is not None and not 0 <= accepted < float("inf"):
            raise UsageError(f"loss.{name}={accepted:g}: a share of 1, not below 0, or null for no limit.")
    price, currency = options.hardware.price_per_hour, options.hardware.currency
    if price is not None and not 0 < price < float("inf"):
        raise UsageError(
            f"hardware.price_per_hour={price:g}: a price is above 0; null takes what was recorded."
        )
    return Terms(options.slo, options.attainment, losses, price, currency)


def _of_one_workload(runs: list[Run], workload: str | None) -> list[Run]:
    there = list(dict.fromkeys(subject(run)[0] for run in runs))
    if workload is not None and workload not in there:
        raise UsageError(
            f"workload={workload}: none of the {len(runs)} runs is of it. They are of: {', '.join(there)}."
        )
    if workload is None and len(there) > 1:
        raise UsageError(
            f"These {len(runs)} runs are of {len(there)} workloads, which have an answer each. "
            f"Name one: {' or '.join(f'workload={name}' for name in there)}."
        )
    chosen = [run for run in runs if workload is None or subject(run)[0] == workload]
    models = list(dict.fromkeys(subject(run)[1] for run in chosen))
    if len(models) > 1:
        raise UsageError(
            f"These runs served {len(models)} models ({', '.join(models)}): which is good enough is not asked here. "
            "Name runs of one: 'runs=[ID,ID]'."
        )
    return chosen


def _one_currency(runs: list[Run], terms: Terms) -> None:
    found = {str(cost["currency"]) for run in runs if (cost := costs_of(run, terms))}
    if len(found) > 1:
        raise UsageError(
            f"The runs' prices are in {' and '.join(sorted(found))}. Give one for all: "
            "hardware.price_per_hour=PRICE hardware.currency=NAME."
        )
