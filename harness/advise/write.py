"""Writing advice: advice.json for programs, advice.md for people."""

import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson

from harness.compare.advice import Advice
from harness.compare.groups import Figure
from harness.compare.quality import QualityLoss
from harness.compare.settings import Setting
from harness.core.errors import HarnessError
from harness.metrics.slo import limits_of, percentile_limits_of
from harness.report.advice import AdviceSection, reasons

SCHEMA = 1


def write(advice: Advice, section: AdviceSection, folder: Path) -> Path:
    """Write folder/advice.json and folder/advice.md; returns the path of the latter.

    Raises HarnessError where the folder cannot be written.
    """
    path = folder / "advice.md"
    data = orjson.dumps(as_record(advice, section), option=orjson.OPT_INDENT_2)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "advice.json").write_bytes(data + b"\n")
        path.write_text(as_markdown(section), encoding="utf-8")
    except OSError as error:
        raise HarnessError(
            f"The advice cannot be written to {folder} ({error.strerror or error}). Name another out=FOLDER."
        ) from error
    return path


def as_record(advice: Advice, section: AdviceSection) -> dict[str, Any]:
    """The advice as plain values; losses and savings are shares of 1, limits milliseconds."""
    terms, verdict = advice.terms, advice.verdict
    return {
        "schema": SCHEMA,
        "workload": advice.asked.workload,
        "model": advice.asked.model,
        "ranked_by": advice.by,
        "currency": advice.currency or None,
        "terms": {
            "slo": {**limits_of(terms.slo), **percentile_limits_of(terms.slo)},
            "attainment": terms.attainment,
            "losses": dict(terms.losses),
        },
        "best": advice.best.label if advice.best else None,
        "headline": section.headline,
        "against_next": None if verdict is None else asdict(verdict),
        "alike": list(advice.alike),
        "ranked": [_setting(one) for one in advice.ranked],
        "excluded": [_setting(one) | {"why": reasons(one)} for one in advice.excluded],
        "left_out_runs": advice.asked.left_out,
        "next": [asdict(step) for step in section.steps],
    }


def as_markdown(section: AdviceSection) -> str:
    """The same as on the terminal."""
    lines = [f"# {_safe(section.title)}", "", f"**{_safe(section.headline)}**", ""]
    lines += [f"- {_safe(sentence)}" for sentence in section.sentences]
    if section.rows:
        lines += ["", _row(["setting", *section.headings]), _row(["---"] + ["--:"] * len(section.headings))]
        lines += [_row([row.label, *(cell.text for cell in row.cells)]) for row in section.rows]
    if section.excluded:
        lines += ["", "## Left out", ""]
        lines += [f"- {_safe(label)}: {_safe('; '.join(reasons))}." for label, reasons in section.excluded]
    if section.steps:
        lines += ["", "## Measure next", ""]
        for step in section.steps:
            lines += [_safe(step.why), ""]
            lines += ["```", *step.commands, "```", ""] if step.commands else []
    return "\n".join(lines).rstrip("\n") + "\n"


def _setting(one: Setting) -> dict[str, Any]:
    return {
        "setting": one.label,
        "runs": [run.id for run in one.runs],
        "problems": list(one.problems),
        "runs_left_out": one.left_out,
        "output_tokens_per_s": _figure(one.rate),
        "cost": {name: _figure(figure) for name, figure in one.cost.items()},
        "slo": [asdict(limit) | {"met": limit.met, "sure": limit.sure} for limit in one.held],
        "reference": one.reference,
        "references": list(one.references),
        "losses": [_loss(loss) for loss in one.losses],
        "plain": one.plain,
        "saving": None if one.saving is None else asdict(one.saving) | {"interval": one.saving.interval},
    }


def _loss(one: QualityLoss) -> dict[str, Any]:
    return {
        "figure": one.figure.path.rsplit(".", 1)[-1],
        "lost": one.lost,
        "interval": [end if math.isfinite(end) else None for end in one.interval],
        "limit": one.limit,
        "items": one.items,
        "verdict": one.verdict,
        "why": one.why or None,
    }


def _figure(figure: Figure | None) -> Mapping[str, Any] | None:
    return None if figure is None else asdict(figure)


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(_safe(cell).replace('|', chr(92) + '|') for cell in cells)} |"


def _safe(text: str) -> str:
    """Labels come from configurations: nothing in them may become markup."""
    return text.replace("\n", " ").replace("<", "&lt;").replace("`", "'")
