"""A gate's outcome for people: sentences, a Markdown page, and the marks of a CI system."""

from collections.abc import Sequence

from harness.gate.findings import INCONCLUSIVE, PASSED, REGRESSED, Finding, Outcome
from harness.gate.history import Change
from harness.report.values import MISSING, memory, number, plain_markdown

_MARKS = {PASSED: "✓", REGRESSED: "✗", INCONCLUSIVE: "?"}
_HEADINGS = ("", "figure", "baseline", "tonight", "worse by", "could have seen", "why")


def headline(outcome: Outcome) -> str:
    """The night in a sentence."""
    worse = [finding for finding in outcome.findings if finding.word == REGRESSED]
    if worse:
        return "Regressed: " + "; ".join(
            f"{_where(finding)} {worsening(finding)}".strip() for finding in worse
        )
    undecided = [finding for finding in outcome.findings if finding.word == INCONCLUSIVE]
    if undecided:
        return f"Inconclusive: {len(undecided)} of {len(outcome.findings)} figures could not be decided"
    return (
        f"Passed: none of {len(outcome.findings)} figures is worse"
        if outcome.findings
        else "Inconclusive: no figures"
    )


def lines(outcome: Outcome) -> list[str]:
    """A line for each finding."""
    return [f"{_MARKS[one.word]} {_where(one)}: {_values(one)}{one.why}" for one in outcome.findings]


def markdown(outcome: Outcome, changes: Sequence[Change]) -> str:
    """For a step summary or a pull request."""
    rows = [f"| {' | '.join(_row(one))} |" for one in outcome.findings]
    table = [f"| {' | '.join(_HEADINGS)} |", "| --- | --- | ---: | ---: | ---: | ---: | --- |", *rows]
    cautions = [f"- {plain_markdown(caution)}" for caution in outcome.cautions]
    levels = [f"- {plain_markdown(change_words(change))}" for change in changes]
    parts = [
        f"## {plain_markdown(headline(outcome))}",
        f"Night {outcome.night}, {outcome.mode} mode.",
        "\n".join(table),
    ]
    if cautions:
        parts.append("\n".join(["To know beside it:", "", *cautions]))
    if levels:
        parts.append("\n".join(["Levels that changed in the history:", "", *levels]))
    return "\n\n".join(parts) + "\n"


def annotations(outcome: Outcome) -> list[str]:
    """Workflow commands of GitHub Actions: an error for each regression, a warning for what is not decided."""
    kinds = {REGRESSED: "error", INCONCLUSIVE: "warning"}
    return [
        f"::{kinds[one.word]} title={_property(_where(one))}::{_message(_values(one) + one.why)}"
        for one in outcome.findings
        if one.word in kinds
    ]


def change_words(change: Change) -> str:
    """When a series found a new level, by how much, and what changed with it."""
    versions = f"; {change.before} before, {change.after} after" if change.before != change.after else ""
    return (
        f"{change.path} of {change.cell} changed by {100 * (change.ratio - 1):+.0f} % between {change.last_before} "
        f"and {change.first_after}{versions}"
    )


def worsening(finding: Finding) -> str:
    """How much worse: 12.3 %; "" where it is not known."""
    return "" if finding.worsening is None else f"{100 * finding.worsening:.1f} %"


def _row(finding: Finding) -> tuple[str, ...]:
    """Cells of _HEADINGS."""
    return (
        f"{_MARKS[finding.word]} {finding.word}",
        plain_markdown(_where(finding)),
        _value(finding.baseline, finding.unit),
        _value(finding.candidate, finding.unit),
        worsening(finding) or MISSING,
        _share(finding.visible),
        plain_markdown(finding.why),
    )


def _where(finding: Finding) -> str:
    return f"{finding.cell} · {finding.title}"


def _values(finding: Finding) -> str:
    if finding.baseline is None or finding.candidate is None:
        return ""
    before, after = _value(finding.baseline, finding.unit), _value(finding.candidate, finding.unit)
    worse = finding.worsening or 0.0
    return f"{before} → {after} ({100 * abs(worse):.1f} % {'worse' if worse > 0 else 'better'}); "


def _value(value: float | None, unit: str) -> str:
    return (
        memory(value)
        if unit == "bytes"
        else f"{number(value)} {unit}".strip()
        if value is not None
        else MISSING
    )


def _share(share: float | None) -> str:
    return MISSING if share is None else f"{100 * share:.0f} %"


def _message(text: str) -> str:
    """Escaped as workflow commands ask for messages."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    """Escaped as workflow commands ask for the values of properties."""
    return _message(text).replace(":", "%3A").replace(",", "%2C")
