"""Advice on a terminal."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from harness.report.advice import AdviceSection

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def show(section: AdviceSection, console: "Console") -> None:
    """Print the answer, the table, what was left out and what to do next."""
    from rich.text import Text

    console.print(Text(section.headline, style="bold" if section.rows else "bold red"))
    console.print(_listed(section.sentences))
    if section.rows:
        console.print(_table(section))
    if section.excluded:
        console.print(Text("Left out:"))
        console.print(_listed([f"{label}: {'; '.join(reasons)}." for label, reasons in section.excluded]))
    if section.steps:
        console.print(Text("Measure next:"))
        for step in section.steps:
            console.print(_listed([step.why]))
            for command in step.commands:  # one that was broken cannot be copied
                console.print(f"    {command}", markup=False, soft_wrap=True)


def _listed(sentences: Sequence[str]) -> "Table":
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 1, 0, 0))
    for sentence in sentences:
        grid.add_row(Text("-"), Text(sentence))
    return grid


def _table(section: AdviceSection) -> "Table":
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("setting", overflow="fold", min_width=12)
    shown = [place for place, heading in enumerate(section.short) if heading]
    for place in shown:
        table.add_column(section.short[place], justify="right", no_wrap=True)
    for row in section.rows:
        cells = [Text(row.cells[place].text) for place in shown]
        table.add_row(Text(row.label), *cells, style="bold" if row.best else "")
    return table
