"""A plan on a terminal, within 80 columns."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from harness.plan import words
from harness.plan.measured import Comparison
from harness.plan.planning import Plan
from harness.report.values import memory, number

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def show(plan: Plan, comparisons: Sequence[Comparison], console: "Console") -> None:
    """Print the answer, the figures, the memory by context, and what would help."""

    def line(text: str, style: str = "") -> None:
        console.print(text, style=style, markup=False)

    line(f"{words.title(plan)}: {words.verdict(plan)}", "bold" if plan.fits else "bold red")
    line(words.balance(plan))
    line(words.limits(plan))
    facts = _table()
    facts.show_header = False
    for label, value, made_of in words.facts(plan, comparisons):
        facts.add_row(label, value, made_of)
    console.print(facts)
    console.print(_by_context(plan))
    if plan.remedies:
        line("What would help, each alone:")
        console.print(_remedies(plan))
    for sentence in words.comparison_lines(comparisons):
        line(sentence)
    for sentence in words.sources(plan):
        line(sentence, "dim")


def _table(*headings: str) -> "Table":
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    if not headings:
        table.add_column(no_wrap=True)
        table.add_column(justify="right", no_wrap=True)
        table.add_column(overflow="fold")
    for position, heading in enumerate(headings):
        table.add_column(heading, justify="right" if position else "left", no_wrap=True)
    return table


def _by_context(plan: Plan) -> "Table":
    """A row a context length; speeds are those of the most users that fit."""
    price = plan.setting.price_per_hour is not None
    currency = plan.setting.hardware.currency
    costs = [f"{currency}/M\ntokens"] if price else []
    table = _table(
        "context", "KV per\nrequest", "most\nusers", "TTFT\nalone", "TPOT\nfull", "tokens/s", *costs
    )
    for row in plan.rows:
        bounds = row.speeds
        cells = [f"{row.context:,}", memory(row.kv_bytes), f"{row.most_users:,}"]
        if bounds is None:
            cells += ["–"] * 3
        else:
            cells += [words.seconds(bounds.ttft_s), words.seconds(bounds.tpot_s), number(bounds.tokens_per_s)]
        if price:
            cells.append(number(row.cost.get("per_million_output_tokens")))
        table.add_row(*cells, style="bold" if row.context == plan.wish.context else "")
    return table


def _remedies(plan: Plan) -> "Table":
    table = _table("change", f"users at\n{plan.wish.context:,}", f"tokens for\n{plan.wish.users:,}", "fits")
    table.add_column("type", overflow="fold")
    for one in plan.remedies:
        table.add_row(
            one.title,
            f"{one.users:,}",
            f"{one.context:,}",
            "yes" if one.enough else "no",
            one.overrides,
        )
    return table
