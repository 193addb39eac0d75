"""Advice on a terminal."""

from typing import TYPE_CHECKING

from harness.report.advice import AdviceSection

if TYPE_CHECKING:
    from rich.console import Console


def show(section: AdviceSection, console: "Console") -> None:
    """Print the answer, the table, what was left out and what to do next."""
    from rich.text import Text

    def line(text: str, style: str = "", soft_wrap: bool = False) -> None:
        console.print(text, style=style, markup=False, soft_wrap=soft_wrap)

    line(section.headline, "bold" if section.rows else "bold red")
    for sentence in section.sentences:
        line(sentence)
    if section.rows:
        console.print(_table(section))
    if section.excluded:
        line("Left out:")
        for label, reasons in section.excluded:
            console.print(Text(f"  {label}: {'; '.join(reasons)}."))
    if section.steps:
        line("Measure next:")
        for step in section.steps:
            console.print(Text(f"  {step.why}"))
            for command in step.commands:
                line(f"    {command}", soft_wrap=True)  # a command that was broken cannot be copied


def _table(section: AdviceSection) -> object:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("setting", overflow="fold", min_width=12)
    for heading in section.headings:
        table.add_column(heading, justify="right")
    for row in section.rows:
        table.add_row(Text(row.label), *map(Text, row.cells), style="bold" if row.best else "")
    return table
