"""From runs to the page: everything the template shows, as plain values (which it escapes)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from harness.compare.advice import Advice
from harness.compare.again import command, overrides_of
from harness.metrics.latency import measured, succeeded
from harness.records.paths import pick
from harness.records.reader import Run
from harness.records.searches import RecordedSearch, searches_of
from harness.report.advice import AdviceSection, advice_section, no_advice
from harness.report.advising import advice_on
from harness.report.against_load import against_load
from harness.report.answer import answer
from harness.report.canvas import DASH_ARRAYS, PALETTE
from harness.report.comparison import comparison_sections
from harness.report.context_scaling import outside_studies, scaling_sections
from harness.report.facets import facets
from harness.report.figure import Figure
from harness.report.figures import load_over_time, memory_over_time, token_gaps, ttft_distribution
from harness.report.frontier import frontier_figures
from harness.report.glossary import GLOSSARY
from harness.report.labels import differing_options, group_labels, labels
from harness.report.latency_throughput import latency_throughput
from harness.report.load_lines import questions
from harness.report.memory import memory_figures
from harness.report.positions import perplexity_by_position
from harness.report.quality_costs import cost_sections
from harness.report.script import page_script
from harness.report.searches import section
from harness.report.table import Cell, Column, cells, columns_for, error_count, failed_checks
from harness.report.timeline import timeline
from harness.report.tradeoff import tradeoff_sections
from harness.report.values import against_limit, flatten, listed

_SHOWN_ERRORS = 3  # of one kind in one run
_SHOWN_VALUES = 6  # of one key that differs
_UNKNOWN = "not known"


@dataclass(frozen=True)
class Swatch:
    """A line in a legend: number of its colour, pattern of its dashes."""

    colour: int
    dashes: str


@dataclass(frozen=True)
class Row:
    """A run as the page shows it. again: the command that measures it again, None where nobody can say.

    series: which of the figures' lines is its. swatch: that line in a legend.
    """

    run: Run
    label: str
    series: int
    swatch: Swatch
    cells: list[Cell]
    errors: int | None
    failed_checks: list[str]
    passed_checks: int
    notes: list[str]
    timeline: Figure | None
    again: str | None
    config: list[tuple[str, str]]
    fingerprint: list[tuple[str, str]]
    launch: list[tuple[str, str]]


@dataclass(frozen=True)
class CheckRow:
    """One check over all runs. failed: (label, value against limit). unknown: (label, why)."""

    title: str
    advice: str
    passed: int
    failed: list[tuple[str, str]] = field(default_factory=list)
    unknown: list[tuple[str, str]] = field(default_factory=list)


def page(runs: Sequence[Run]) -> dict[str, Any]:
    """What the template needs, by name."""
    names = labels(runs)
    groups = group_labels(runs)
    series = list(dict.fromkeys(groups.values()))
    coloured = [(series.index(groups[run.id]), run) for run in runs]
    columns = columns_for(runs)
    rows = [_row(run, names[run.id], position, columns) for position, run in coloured]
    searches = searches_of(runs)
    rivals = outside_studies(runs)
    advised, advice = _advised(rivals, searches)
    ranked = {run.id for one in advised for group in one.asked.groups.values() for run in group}
    quality, speed = frontier_figures(rivals, groups)
    asked = questions(rivals)
    loads = against_load(asked, searches)
    drawn_in = {run: name for name, figure in loads.items() for run in " ".join(figure.data["runs"]).split()}
    return {
        "title": _title(runs),
        "answer": answer(runs, searches, ranked),
        "advice": advice,
        "searches": [section(search, runs, _first_known(search, drawn_in)) for search in searches],
        "scaling": [*scaling_sections(runs), *tradeoff_sections(advised)],
        "comparisons": comparison_sections(rivals, groups),
        "quality_costs": cost_sections(runs),
        "rows": rows,
        "series": [(swatch(position), label) for position, label in enumerate(series)],
        "number_of": {run.id: number for number, run in enumerate(runs, 1)},
        "facets": facets(runs),
        "script": page_script(),
        "columns": columns,
        # In groups: each is a section of the page.
        "figures": {
            "frontier": latency_throughput(asked),
            "waits": _those_drawn(ttft_distribution(coloured), token_gaps(coloured)),
            "load": list(loads.values()),
            "memory": [*memory_figures(coloured, groups), *speed],
            "quality": [*quality, *_those_drawn(perplexity_by_position(coloured))],
            "time": _those_drawn(load_over_time(coloured), memory_over_time(coloured)),
        },
        "errors": [error for row in rows for error in _errors(row)],
        "checks": _checks(rows),
        "differences": _differences(runs),
        "fingerprints": _fingerprints(runs),
        "glossary": GLOSSARY,
        "started": _date(min(run.started_at for run in runs)),
    }


def _first_known(search: RecordedSearch, drawn_in: Mapping[str, str]) -> str | None:
    return next((drawn_in[probe.run] for probe in search.probes if probe.run in drawn_in), None)


def _those_drawn(*figures: Figure | None) -> list[Figure]:
    return [figure for figure in figures if figure is not None]


def _advised(
    runs: Sequence[Run], searches: Sequence[RecordedSearch]
) -> tuple[list[Advice], list[AdviceSection]]:
    """Advice and its sections; whatever is wrong with it is said in its place, and never costs the report."""
    try:
        advised = advice_on(runs, searches)
        return advised, [advice_section(one) for one in advised]
    except Exception as fault:
        return [], [no_advice(fault)]


def _row(run: Run, label: str, series: int, columns: Sequence[Column]) -> Row:
    return Row(
        run=run,
        label=label,
        series=series,
        swatch=swatch(series),
        cells=cells(run, columns),
        errors=error_count(run),
        failed_checks=failed_checks(run),
        passed_checks=sum(check["ok"] is True for check in run.validity),
        notes=[str(note) for note in pick(run.fingerprint, "notes") or []],
        timeline=timeline(run, f"timeline-{run.id}", label),
        again=_again(run),
        config=_pairs(run.config),
        fingerprint=_pairs(run.fingerprint),
        launch=[(phase, " ".join(map(str, line))) for phase, line in run.launch.items() if line],
    )


def _again(run: Run) -> str | None:
    """The command that measures the run again; None where its configuration is none that this version knows."""
    try:
        return command(overrides_of(run))
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def swatch(series: int) -> Swatch:
    """The line of the n-th series, as `canvas.series_style` draws it."""
    return Swatch(series % len(PALETTE), DASH_ARRAYS[series // len(PALETTE) % len(DASH_ARRAYS)])


def _errors(row: Row) -> list[dict[str, Any]]:
    """Kinds of errors of one run, the most frequent first, each with the server's own words."""
    if row.run.requests.empty:
        return []
    requests = measured(row.run.requests)
    failed = requests[~succeeded(requests)]
    result = []
    for kind, count in failed["error"].fillna("unknown").value_counts().items():
        words = failed.loc[failed["error"].fillna("unknown") == kind, "error_detail"].dropna().unique()
        result.append(
            {
                "run": row.run.id,
                "label": row.label,
                "kind": kind,
                "count": count,
                "words": list(words[:_SHOWN_ERRORS]),
            }
        )
    return result


def _checks(rows: Sequence[Row]) -> list[CheckRow]:
    """Checks by name over all runs: failed ones first, then those nobody could evaluate, then the passed."""
    found: dict[str, CheckRow] = {}
    for row in rows:
        for entry in row.run.validity:
            title = str(entry.get("title") or entry["check"])
            check = found.get(entry["check"]) or CheckRow(title, str(entry.get("advice") or ""), 0)
            if entry["ok"]:
                check = CheckRow(check.title, check.advice, check.passed + 1, check.failed, check.unknown)
            elif entry["ok"] is None:
                check.unknown.append((row.label, str(entry.get("why") or _UNKNOWN)))
            else:
                check.failed.append((row.label, against_limit(entry)))
            found[entry["check"]] = check
    return sorted(found.values(), key=lambda check: (not check.failed, bool(check.passed)))


def _differences(runs: Sequence[Run]) -> list[tuple[str, list[str]]]:
    """Options that are not the same in all runs, with their distinct values in order of appearance."""
    return [
        (key, list(dict.fromkeys(_text(pick(run.config, key)) for run in runs)))
        for key in differing_options(runs)
    ]


def _fingerprints(runs: Sequence[Run]) -> list[tuple[str, list[str]]]:
    """What is not the same in all fingerprints (versions, machine, plan, model), with its first distinct values."""
    flat = [flatten(run.fingerprint) for run in runs if run.status != "failed"]
    found = []
    for key in sorted({key for fingerprint in flat for key in fingerprint}):
        values = list(dict.fromkeys(_text(fingerprint.get(key)) for fingerprint in flat))
        if len(values) > 1:
            more = [f"and {len(values) - _SHOWN_VALUES} more"] if len(values) > _SHOWN_VALUES else []
            found.append((key, [*values[:_SHOWN_VALUES], *more]))
    return found


def _pairs(record: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(key, _text(value)) for key, value in flatten(record).items()]


def _text(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return str(value)


def _title(runs: Sequence[Run]) -> str:
    workloads = list(dict.fromkeys(str(pick(run.config, "workload.name") or run.id) for run in runs))
    engines = list(dict.fromkeys(str(pick(run.config, "backend.name") or "an engine") for run in runs))
    title = f"{listed(workloads)} on {listed(engines)}"
    return title[:1].upper() + title[1:]


def _date(iso: str) -> str:
    try:
        instant = datetime.fromisoformat(iso)
    except ValueError:
        return iso
    return f"{instant:%d %B %Y, %H:%M} {instant.tzname() or ''}".lstrip("0").strip()
