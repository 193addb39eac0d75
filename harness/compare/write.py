"""A comparison for programs (JSON), for a pull request (Markdown), and for people (HTML)."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson

from harness.compare import words
from harness.compare.cells import LeftOut
from harness.compare.two_sides import CellComparison
from harness.core.errors import HarnessError
from harness.report.values import plain_markdown

SCHEMA = 1
_TEMPLATES = Path(__file__).parent / "templates"


def as_record(found: Sequence[CellComparison], left: Sequence[LeftOut] = ()) -> dict[str, Any]:
    """Plain values; ratios are candidate / baseline."""
    return {
        "schema": SCHEMA,
        "cells": [
            {
                "workload": one.cell.workload,
                "setting": one.cell.setting,
                "baseline": [run.id for run in one.cell.baseline],
                "candidate": [run.id for run in one.cell.candidate],
                "runs_with_a_failed_check": {"baseline": one.spoilt[0], "candidate": one.spoilt[1]},
                "verdict": one.word,
                "figures": [
                    {
                        "path": judged.measure.path,
                        "gating": judged.measure.gating,
                        "least_effect": judged.measure.least_effect,
                        "baseline": judged.baseline,
                        "candidate": judged.candidate,
                        "ratio": judged.verdict.ratio.value,
                        "interval": [judged.verdict.ratio.low, judged.verdict.ratio.high],
                        "p": judged.verdict.p,
                        "detectable": judged.verdict.detectable,
                        "paired_items": asdict(judged.paired) if judged.paired else None,
                        "runs_spoilt": judged.spoilt,
                        "verdict": judged.word,
                        "why": judged.verdict.why,
                    }
                    for judged in one.judged
                ],
                "differences": [asdict(difference) for difference in one.differences],
            }
            for one in found
        ],
        "left_out": [asdict(one) for one in left],
    }


def json_text(found: Sequence[CellComparison], left: Sequence[LeftOut] = ()) -> str:
    """The record, indented."""
    return orjson.dumps(as_record(found, left), option=orjson.OPT_INDENT_2).decode()


def markdown(found: Sequence[CellComparison], left: Sequence[LeftOut] = ()) -> str:
    """A heading and a table for each cell. Text of records can form neither a table cell nor a tag."""
    parts = []
    for one in found:
        lines = [f"### {plain_markdown(words.title(one))}", "", f"{words.runs(one)}.", ""]
        lines.append(f"| {' | '.join(words.HEADINGS)} |")
        lines.append("| --- | ---: | ---: | ---: | ---: | --- |")
        for judged in one.judged:
            name, *cells, verdict = words.row(judged)
            if judged.measure.gating:
                name, verdict = f"**{name}**", f"**{verdict}**"
            lines.append(f"| {' | '.join((name, *cells, verdict))} |")
        lines += [
            "",
            *(f"{plain_markdown(sentence)}  " for sentence in words.notes(one)),
        ]
        if one.differences:
            lines += ["", "<details><summary>Not the same on both sides</summary>", ""]
            lines += ["| | baseline | candidate |", "| --- | --- | --- |"]
            for two in one.differences:
                row = map(plain_markdown, (two.name, two.baseline, two.candidate))
                lines.append(f"| {' | '.join(row)} |")
            lines += ["", "</details>"]
        parts.append("\n".join(lines))
    parts += [plain_markdown(sentence) for sentence in words.not_compared(left)]
    return "\n\n".join(parts) + "\n"


def html(found: Sequence[CellComparison], left: Sequence[LeftOut] = ()) -> str:
    """One page that needs nothing else, in the look of the report."""
    import jinja2

    import harness.report.write as report

    styles = Path(report.__file__).parent / "templates"
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([_TEMPLATES, styles]),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    return environment.get_template("compare.html.j2").render(found=found, left=left, words=words)


def write(found: Sequence[CellComparison], left: Sequence[LeftOut], folder: Path) -> Path:
    """Write compare.json, compare.md and compare.html; returns the path of the last.

    Raises HarnessError where the folder cannot be written.
    """
    texts = {
        "compare.json": json_text(found, left) + "\n",
        "compare.md": markdown(found, left),
        "compare.html": html(found, left),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise HarnessError(
            f"The comparison cannot be written to {folder} ({error.strerror or error}). Name another out=FOLDER."
        ) from error
    return folder / "compare.html"
