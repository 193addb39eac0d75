"""The answer first: what was compared, on what, and what came out, in plain sentences."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from harness.records.drift import drift_words
from harness.records.paths import pick
from harness.records.reader import Run
from harness.records.schema import IDENTITY
from harness.records.searches import RecordedSearch
from harness.report.context_scaling import outside_studies, scaling_headlines, scaling_words
from harness.report.labels import group_labels
from harness.report.memory import memory_words
from harness.report.parts import reason_for
from harness.report.values import duration, listed, memory, number

FEWEST_RUNS_FOR_A_VERDICT = 5  # a side
_NO_VERDICT = (
    f"With fewer than {FEWEST_RUNS_FOR_A_VERDICT} runs a side this describes what was seen; it is no verdict."
)
_MOST_NAMED = 3


@dataclass(frozen=True, slots=True)
class Answer:
    """The opening of a report.

    what: one sentence on what was compared and where. figures: pairs of a name (may be empty) and what it did.
    cautions: what to keep in mind.
    """

    what: str
    figures: list[tuple[str, str]]
    cautions: list[str]


def answer(
    runs: Sequence[Run], searches: Sequence[RecordedSearch] = (), advised: Collection[str] = ()
) -> Answer:
    """The opening of a report. The probes of a search, and the runs of a context-scaling study, are told by what was
    found, not one by one.

    advised: ids of runs that advice ranks above: they are not compared again, and described only where they are few.
    """
    probes = {probe.run for search in searches for probe in search.probes}
    measured = [run for run in runs if run.status != "failed"]
    others = [run for run in outside_studies(measured) if run.id not in probes]
    cautions: list[str] = []
    figures = [("", search.sentence) for search in searches]
    figures += [("", headline) for headline in scaling_headlines(measured)]
    if not measured:
        figures = [("", "No run was measured. The reasons are in the table below.")]
    elif others:
        ranked = advised and all(run.id in advised for run in others)
        comparison = None if ranked else _comparison(others)
        figures += [("", comparison)] if comparison else []
        groups = _groups(others)
        told = groups if not ranked or len(groups) <= _MOST_NAMED else {}
        figures += [(name, _figures(members)) for name, members in told.items()]
        if not ranked and workloads_differ(others):
            cautions.append(
                "These runs were asked different things: the rows describe workloads, not a ranking."
            )
        elif not ranked and models_differ(others):
            cautions.append(
                "These runs served different models: their speeds are no comparison of anything else."
            )
        elif comparison and _too_few(others):
            cautions.append(_NO_VERDICT)
    partial = sum(run.status == "partial" for run in runs)
    if partial:
        cautions.append(f"{_count(partial, 'run')} ended early: what had been measured by then is shown.")
    spoilt = sum(any(check["ok"] is False for check in run.validity) for run in measured)
    if spoilt:
        cautions.append(f"{_count(spoilt, 'run')} failed a validity check: figures it spoils are marked ✗.")
    if drift := _drift(measured):
        cautions.append(drift)
    return Answer(_what(runs), figures, cautions)


def _drift(runs: Sequence[Run]) -> str | None:
    """A look at the machine that cannot be read costs this sentence alone."""
    try:
        return drift_words(runs)
    except (TypeError, ValueError, KeyError, AttributeError, ArithmeticError) as fault:
        return f"Whether the machine kept its speed: {reason_for(fault)}"


def one_sentence(runs: Sequence[Run]) -> str:
    """The end of a command on a terminal."""
    measured = [run for run in runs if run.status != "failed"]
    if not measured:
        reasons = {run.reason or "no reason recorded" for run in runs}
        return f"No run was measured: {'; '.join(sorted(reasons))}" if runs else "There is no run."
    others = outside_studies(measured)
    comparison = _comparison(others) if others else None
    parts = [comparison or _described(others)] if others else []
    if len(_groups(others)) == 1:
        parts += [words for words in (memory_words(others),) if words]
    parts += scaling_words(measured)
    if comparison and _too_few(measured):
        parts.append(_NO_VERDICT)
    failed = len(runs) - len(measured)
    if failed:
        parts.append(f"{_count(failed, 'run')} failed.")
    if any(check["ok"] is False for run in measured for check in run.validity):
        parts.append("Figures marked ✗ are spoilt by a failed check.")
    return " ".join(parts)


def _too_few(runs: Sequence[Run]) -> bool:
    return min(len(group) for group in _groups(runs).values()) < FEWEST_RUNS_FOR_A_VERDICT


def machine_of(run: Run) -> str:
    """CPU, cores, memory and GPUs in a few words."""
    machine = pick(run.fingerprint, "machine") or {}
    if not machine:
        return "an unknown machine"
    gpus = machine.get("gpus") or []
    parts = [
        f"{machine['cores']} cores" if machine.get("cores") else "",
        f"{memory(machine['memory_bytes'])} of memory" if machine.get("memory_bytes") else "",
        listed(gpus) if gpus else "no GPU",
    ]
    return f"{machine.get('cpu') or 'an unknown CPU'} ({', '.join(part for part in parts if part)})"


def workloads_differ(runs: Sequence[Run]) -> bool:
    """Whether what is compared was asked different things: other plans, or not the same set of plans (seeds)."""
    return _differ(runs, "plan_sha256")


def models_differ(runs: Sequence[Run]) -> bool:
    """Whether what is compared served different models."""
    return _differ(runs, "model_sha256")


def _differ(runs: Sequence[Run], field: str) -> bool:
    values = [{pick(run.fingerprint, field) for run in members} for members in _groups(runs).values()]
    return any(found != values[0] for found in values)


def _what(runs: Sequence[Run]) -> str:
    engines = _distinct(runs, "config.backend.name")
    workloads = _distinct(runs, "config.workload.name")
    models = _distinct(runs, "fingerprint.model") or _distinct(runs, "config.model.name")
    machines = list(dict.fromkeys(machine_of(run) for run in runs if run.fingerprint))
    failed = sum(run.status == "failed" for run in runs)
    sentence = (
        f"{_count(len(runs), 'run')} of {listed(models) or 'a model'} on {listed(engines) or 'an engine'}"
    )
    sentence += f", serving {listed(workloads)}" if workloads else ""
    sentence += f", measured on {listed(machines)}" if machines else ""
    return f"{sentence}; {failed} of them failed." if failed else f"{sentence}."


def _figures(runs: Sequence[Run]) -> str:
    first, late = _median(runs, "ttft_ms.p50"), _median(runs, "ttft_ms.p95")
    each, rate = _median(runs, "tpot_ms.p50"), _median(runs, "output_tokens_per_s")
    repeated = f" (median of {len(runs)} runs)" if len(runs) > 1 else ""
    if first is None:
        return f"no request succeeded{repeated}."
    pace = f", then a token every {duration(each)}" if each is not None else ""
    return (
        f"first token after {duration(first)} (95 of 100 within {duration(late)}){pace}; "
        f"{number(rate)} tokens/s in all{repeated}."
    )


def _described(runs: Sequence[Run]) -> str:
    """One group in full, a few by their throughput, many by the range of it."""
    groups = _groups(runs)
    if len(groups) == 1:
        return " ".join(f"{name}: {_figures(members)}" for name, members in groups.items())
    if len(groups) <= _MOST_NAMED:
        each = [f"{name} {number(_median(m, 'output_tokens_per_s'))}" for name, m in groups.items()]
        return f"Output tokens per second: {listed(each)}."
    rates = [
        rate for members in groups.values() if (rate := _median(members, "output_tokens_per_s")) is not None
    ]
    spread = f"{number(min(rates))} to {number(max(rates))} tokens/s" if rates else "no request succeeded"
    return f"{len(runs)} runs of {len(groups)} settings: {spread}."


def _comparison(runs: Sequence[Run]) -> str | None:
    """Fastest against slowest group in output tokens per second, where all were asked the same."""
    rates = {name: _median(members, "output_tokens_per_s") for name, members in _groups(runs).items()}
    known = {name: rate for name, rate in rates.items() if rate}
    if len(known) < 2 or any(_differ(runs, field) for field in IDENTITY):
        return None
    best, worst = max(known, key=lambda name: known[name]), min(known, key=lambda name: known[name])
    ratio = known[best] / known[worst]
    return (
        f"{best} gave {number(ratio)} times the output tokens per second of {worst} "
        f"({number(known[best])} against {number(known[worst])})."
    )


def _groups(runs: Sequence[Run]) -> dict[str, list[Run]]:
    names = group_labels(runs)
    grouped: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        grouped[names[run.id]].append(run)
    return grouped


def _median(runs: Sequence[Run], path: str) -> float | None:
    values = [value for run in runs if (value := pick(run.summary, path)) is not None]
    return median(values) if values else None


def _distinct(runs: Sequence[Run], path: str) -> list[str]:
    part, rest = path.split(".", 1)
    values: list[Any] = [pick(getattr(run, part), rest) for run in runs]
    return list(dict.fromkeys(str(value) for value in values if value is not None))


def _count(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"
