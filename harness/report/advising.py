"""The advice that a report opens with: for each workload whose settings can be ranked."""

from collections.abc import Sequence

from harness.compare.advice import Advice, advise
from harness.compare.asked import asked
from harness.compare.conf_files import recorded_slo, usual_attainment, usual_losses
from harness.compare.settings import Terms, costs_of
from harness.metrics.slo import SloOptions, limits_of, percentile_limits_of
from harness.records.reader import Run
from harness.records.searches import RecordedSearch
from harness.report.labels import setting_labels


def advice_on(runs: Sequence[Run], searches: Sequence[RecordedSearch] = ()) -> list[Advice]:
    """Advice under the SLO that all runs of a workload were made with, else under none, and the usual quality limit.

    Only where there is something to say: settings to choose from, or one that has limits or a price. Of a search only
    the probe that is its answer stands here.
    """
    passed_over = {probe.run for search in searches for probe in search.probes} - set(map(_answer, searches))
    kept = [run for run in runs if run.id not in passed_over]
    found = []
    for subject in asked(kept, setting_labels(kept)) if kept else []:
        members = [run for group in subject.groups.values() for run in group]
        if not members:  # every setting was asked something else
            continue
        slo = _slo(members)
        terms = Terms(slo, usual_attainment(), usual_losses())
        several = len(subject.groups) > 1
        judged = bool(limits_of(slo) or percentile_limits_of(slo)) or any(
            costs_of(run, terms) for run in members
        )
        measured = any(run.status == "complete" for run in members)
        if measured and (several or judged):
            found.append(advise(subject, terms))
    return found


def _answer(search: RecordedSearch) -> str:
    """The run of the probe that is the search's answer; "" where there is none."""
    if search.answer is None:
        return ""
    value = search.answer.get("value")
    return next((probe.run for probe in search.probes if probe.met and probe.value == value), "")


def _slo(runs: Sequence[Run]) -> SloOptions | None:
    recorded = [run.config.get("slo") for run in runs]
    first = recorded[0]
    return recorded_slo(first) if first and all(other == first for other in recorded) else None
