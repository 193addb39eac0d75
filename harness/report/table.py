"""The table of the runs: which figures it shows, and which of them a failed check spoils."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from harness.metrics.quality_figures import QUALITY_FIGURES
from harness.records.paths import pick
from harness.records.reader import Run
from harness.records.spoilt import problem, spoiling
from harness.report.values import MISSING, memory, money, number, percent, two_decimals

Format = Callable[[float | None], str]


@dataclass(frozen=True, slots=True)
class Column:
    """One column. paths: keys of the summary, shown with a slash between them. unit: below the heading.

    interval: key of a pair [low, high] that is shown behind the figure. optional: left out where no run has it.
    made_of: keys that the figure is computed from: what spoils one of them spoils it. above_chance: key of whether it
    is more than guessing gives; said where it is not.
    """

    heading: str
    unit: str
    paths: tuple[str, ...]
    shown: Format = number
    interval: str | None = None
    optional: bool = False
    made_of: tuple[str, ...] = ()
    above_chance: str | None = None


COLUMNS = (
    Column("TTFT from schedule", "ms, p50 / p95", ("ttft_ms.p50", "ttft_ms.p95")),
    Column("TTFT from send", "ms, p50 / p95", ("ttft_from_send_ms.p50", "ttft_from_send_ms.p95")),
    Column("TPOT", "ms, p50", ("tpot_ms.p50",)),
    Column("ITL", "ms, p99", ("itl_ms.p99",)),
    Column("Output", "tokens/s", ("output_tokens_per_s",)),
    Column("Requests", "per s", ("requests_per_s",)),
    Column("Within SLO", "share of requests", ("slo_attainment",), percent, optional=True),
    Column(
        "Cost",
        "million tokens / query / user-hour",
        ("cost.per_million_output_tokens", "cost.per_query", "cost.per_user_hour"),
        money,
        optional=True,
        made_of=("output_tokens_per_s", "requests_per_s"),
    ),
    Column("KV per request", "", ("memory.kv_per_request_bytes",), memory),
    Column("Peak memory", "engine", ("memory.peak_process_bytes",), memory),
    Column(
        "Perplexity",
        "95 % interval",
        ("quality.perplexity",),
        two_decimals,
        interval="quality.perplexity_interval",
        optional=True,
    ),
    *(
        Column(
            figure.label[:1].upper() + figure.label[1:],
            "right, 95 % interval",
            (figure.path,),
            percent,
            interval=figure.interval,
            optional=True,
            above_chance=f"{figure.path}_above_chance",
        )
        for figure in QUALITY_FIGURES
        if figure.chance
    ),
    Column("Recall", "log-probability", ("quality.recall_log_prob",), two_decimals, optional=True),
)


def columns_for(runs: Sequence[Run]) -> tuple[Column, ...]:
    """COLUMNS without the optional ones that no run has a figure for; the one of cost names the currency."""
    currencies = {str(found) for run in runs if (found := pick(run.summary, "cost.currency"))}
    return tuple(
        replace(column, heading=f"Cost, {' or '.join(sorted(currencies))}")
        if column.heading == "Cost" and currencies
        else column
        for column in COLUMNS
        if not column.optional
        or any(pick(run.summary, path) is not None for run in runs for path in column.paths)
    )


@dataclass(frozen=True, slots=True)
class Cell:
    """What is shown, the number it sorts by (of several the first; None: unknown), failed checks that spoil it."""

    heading: str
    unit: str
    text: str
    value: float | None
    spoilt_by: tuple[str, ...]


def cells(run: Run, columns: Sequence[Column]) -> list[Cell]:
    """One for each column."""
    result = []
    for column in columns:
        values = [pick(run.summary, path) for path in column.paths]
        known = any(value is not None for value in values)
        text = " / ".join(column.shown(value) for value in values) if known else MISSING
        interval = pick(run.summary, column.interval) if column.interval else None
        if known and interval:
            text += f" ({column.shown(interval[0])}–{column.shown(interval[1])})"
        if known and column.above_chance and pick(run.summary, column.above_chance) is False:
            text += ", not above chance"
        spoilt = spoiling(run, (*column.paths, *column.made_of)) if known else ()
        result.append(Cell(column.heading, column.unit, text, values[0], spoilt))
    return result


def failed_checks(run: Run) -> list[str]:
    """What failed, a few words a check."""
    return [problem(check) for check in run.validity if check["ok"] is False]


def error_count(run: Run) -> int | None:
    """Requests that failed, None where nothing was measured."""
    errors = pick(run.summary, "requests.errors")
    return None if errors is None else sum(errors.values())
