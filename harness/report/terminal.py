"""The end of a command on a terminal: a short table with spreads, and one sentence."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from harness.records.paths import pick
from harness.records.reader import Run
from harness.records.spoilt import spoiling
from harness.report.answer import one_sentence
from harness.report.labels import labels
from harness.report.table import error_count, failed_checks
from harness.report.values import against_limit, money, number, percent, two_decimals

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

__all__ = ["advice", "one_sentence", "summary_table"]

_COLUMNS = (("TTFT ms\np50–p95", "ttft_ms"), ("TPOT ms\np50–p95", "tpot_ms"))
# Shown where a run has them.
_COST = "cost.per_million_output_tokens"
_EXTRAS = (
    ("SLO", "slo_attainment", percent),
    ("PPL", "quality.perplexity", two_decimals),
    ("cost\n/M tok", _COST, money),
)
# What a figure is computed from, and so spoilt by.
_MADE_OF = {_COST: "output_tokens_per_s"}


def summary_table(runs: Sequence[Run]) -> "Table":
    """A row a run, fit for 80 columns: latencies with their spread, rate, then what there is of SLO, perplexity
    and errors, and how many checks failed; a figure that one of them spoils is marked ✗.

    Readable without colour; text of records is never taken for markup.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("run", overflow="fold", min_width=12)
    for heading, _ in _COLUMNS:
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("tokens/s", justify="right", no_wrap=True)
    extras = [
        (heading, path, shown)
        for heading, path, shown in _EXTRAS
        if any(pick(run.summary, path) is not None for run in runs)
    ]
    for heading, _, _ in extras:
        table.add_column(heading, justify="right", no_wrap=True)
    any_errors = any(error_count(run) for run in runs)
    if any_errors:
        table.add_column("errors", justify="right", no_wrap=True)
    table.add_column("checks", no_wrap=True)
    names = labels(runs)
    for run in runs:
        if run.status == "failed":
            dashes = ["–"] * (3 + len(extras) + any_errors)
            table.add_row(Text(names[run.id]), *dashes, Text("failed", style="red"))
            continue
        figures = [_figure(run, _spread(run, key), key) for _, key in _COLUMNS]
        rate = _figure(run, number(pick(run.summary, "output_tokens_per_s")), "output_tokens_per_s")
        errors = error_count(run)
        table.add_row(
            Text(names[run.id]),
            *figures,
            rate,
            *(_figure(run, shown(pick(run.summary, path)), path) for _, path, shown in extras),
            *([Text(str(errors), style="red" if errors else "")] if any_errors else []),
            _checks(run),
        )
    return table


def _spread(run: Run, key: str) -> str:
    middle, late = pick(run.summary, f"{key}.p50"), pick(run.summary, f"{key}.p95")
    return "–" if middle is None else f"{number(middle)}–{number(late)}"


def _figure(run: Run, text: str, key: str) -> "Text":
    from rich.text import Text

    return Text(f"{text} ✗", style="red") if spoiling(run, [key, _MADE_OF.get(key, key)]) else Text(text)


def _checks(run: Run) -> "Text":
    from rich.text import Text

    failed = failed_checks(run)
    prefix = "partial, " if run.status == "partial" else ""
    if not failed:
        return Text(f"{prefix}ok")
    return Text(f"{prefix}✗ {len(failed)}", style="red")


def advice(runs: Sequence[Run]) -> list[str]:
    """A line for each failed check: the run, what was found, what to do."""
    names = labels(runs)
    return [
        f"{names[run.id]}: {against_limit(check)}. {check.get('advice') or check['check']}"
        for run in runs
        for check in run.validity
        if check["ok"] is False
    ]
