"""From runs to the page: everything the template shows, as plain values (which it escapes)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from harness.compare.again import command, overrides_of
from harness.compare.conf_files import exists
from harness.metrics.latency import measured, succeeded
from harness.records.paths import pick
from harness.records.reader import Run
from harness.records.searches import RecordedSearch, searches_of
from harness.report.advice import sections
from harness.report.advising import advice_on
from harness.report.against_load import against_load
from harness.report.answer import Answer, answer
from harness.report.comparison import comparison_sections
from harness.report.context_scaling import outside_studies, scaling_sections
from harness.report.differences import fingerprints_that_differ, options_that_differ, pairs
from harness.report.facets import facets
from harness.report.figure import Figure
from harness.report.figures import load_over_time, memory_over_time, token_gaps, ttft_distribution
from harness.report.frontier import frontier_figures
from harness.report.glossary import GLOSSARY
from harness.report.labels import group_labels, labels
from harness.report.latency_throughput import latency_throughput
from harness.report.load_lines import questions
from harness.report.memory import memory_figures
from harness.report.palette import DASH_ARRAYS, PALETTE
from harness.report.parts import Parts
from harness.report.positions import perplexity_by_position
from harness.report.quality_costs import cost_sections
from harness.report.script import page_script
from harness.report.searches import section
from harness.report.table import Cell, Column, cells, columns_for, error_count, failed_checks
from harness.report.timeline import Sheet, timeline
from harness.report.tradeoff import tradeoff_sections
from harness.report.values import UNKNOWN, against_limit, listed

_SHOWN_ERRORS = 3  # of one kind in one run
_NEEDED = ("backend", "model", "workload", "load")  # groups without which nobody knows what was run


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
    """What the template needs, by name. A fault in an optional part leaves its reason in `missing`."""
    parts = Parts()
    nothing: tuple[list[Figure], list[Figure]] = ([], [])
    undrawn: dict[str, Figure] = {}
    names = labels(runs)
    groups = group_labels(runs)
    series = list(dict.fromkeys(groups.values()))
    coloured = [(series.index(groups[run.id]), run) for run in runs]
    drawn = [(position, run) for position, run in coloured if run.status != "failed"]
    columns = columns_for(runs)
    sheet = Sheet()
    rows = [_row(run, names[run.id], position, columns, parts, sheet) for position, run in coloured]
    searches = searches_of(runs)
    rivals = parts.section_or_reason(
        "scaling", "What a longer context costs", lambda: outside_studies(runs), list(runs)
    )
    advised = parts.listed("advice", "What to take", lambda: advice_on(rivals, searches))
    ranked = {run.id for one in advised for group in one.asked.groups.values() for run in group}
    quality, speed = parts.section_or_reason(
        "quality", "What memory buys", lambda: frontier_figures(rivals, groups), nothing
    )
    asked = parts.listed("load", "What was asked", lambda: questions(rivals, searches))
    loads = parts.section_or_reason(
        "load", "What more load costs", lambda: against_load(asked, searches), undrawn
    )
    drawn_in = {run: name for name, figure in loads.items() for ids in figure.runs.values() for run in ids}
    return {
        "title": _title(runs),
        "answer": parts.section_or_reason(
            "answer", "Answer", lambda: answer(runs, searches, ranked), Answer("", [], [])
        ),
        "advice": parts.listed("advice", "What to take", lambda: sections(advised)),
        "searches": parts.listed(
            "searches",
            "The search",
            lambda: [section(search, runs, _first_known(search, drawn_in)) for search in searches],
        ),
        "scaling": [
            *parts.sections("scaling", "What a longer context costs", lambda: scaling_sections(runs)),
            *parts.sections("scaling", "How much of the past must stay", lambda: tradeoff_sections(advised)),
        ],
        "comparisons": parts.listed(
            "comparisons", "Side by side", lambda: comparison_sections(rivals, groups)
        ),
        "quality_costs": parts.listed(
            "quality", "What settings cost in quality", lambda: cost_sections(runs)
        ),
        "rows": rows,
        "series": [(swatch(position), label) for position, label in enumerate(series)],
        "number_of": {run.id: number for number, run in enumerate(runs, 1)},
        "facets": facets(runs),
        "script": page_script(),
        "columns": columns,
        # In groups: each is a section of the page.
        "figures": {
            "frontier": parts.figures(
                "frontier", "The frontier of latency and throughput", lambda: latency_throughput(asked)
            ),
            "waits": parts.figures(
                "waits", "How long users wait", lambda: [ttft_distribution(drawn), token_gaps(drawn)]
            ),
            "load": parts.figures("load", "What more load costs", lambda: list(loads.values())),
            "memory": parts.figures("memory", "Memory", lambda: [*memory_figures(drawn, groups), *speed]),
            "quality": parts.figures(
                "quality", "Quality against memory", lambda: [*quality, perplexity_by_position(drawn)]
            ),
            "time": parts.figures(
                "time", "Over time", lambda: [load_over_time(drawn), memory_over_time(drawn)]
            ),
        },
        "errors": [error for row in rows for error in _errors(row)],
        "checks": _checks(rows),
        "differences": options_that_differ(runs),
        "fingerprints": fingerprints_that_differ(runs),
        "glossary": GLOSSARY,
        "started": _date(min(run.started_at for run in runs)),
        "missing": parts.missing,
    }


def _first_known(search: RecordedSearch, drawn_in: Mapping[str, str]) -> str | None:
    return next((drawn_in[probe.run] for probe in search.probes if probe.run in drawn_in), None)


def _row(run: Run, label: str, series: int, columns: Sequence[Column], parts: Parts, sheet: Sheet) -> Row:
    title = f"Every request of {label}"
    drawn = parts.figures("timelines", title, lambda: [timeline(run, f"timeline-{run.id}", label, sheet)])
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
        timeline=next(iter(drawn), None),
        again=_again(run),
        config=pairs(run.config),
        fingerprint=pairs(run.fingerprint),
        launch=[(phase, " ".join(map(str, line))) for phase, line in run.launch.items() if line],
    )


def _again(run: Run) -> str | None:
    """The command that measures the run again; None where its configuration is none that this version knows."""
    try:
        overrides = overrides_of(run)
        known = all(_exists(group, choice) for group, choice in overrides.items() if "." not in group)
        told = all(isinstance(run.config.get(group), Mapping) for group in _NEEDED)
        return command(overrides) if known and told else None
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def _exists(group: str, choice: str) -> bool:
    """Whether conf/ has this choice, or each of a list of them; of a seed there is no choice."""
    return group == "seed" or all(exists(f"{group}/{one}.yaml") for one in choice.strip("[]").split(","))


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
                check.unknown.append((row.label, str(entry.get("why") or UNKNOWN)))
            else:
                check.failed.append((row.label, against_limit(entry)))
            found[entry["check"]] = check
    return sorted(found.values(), key=lambda check: (not check.failed, bool(check.passed)))


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
