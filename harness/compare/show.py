"""A comparison on a terminal, within 80 columns."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from harness.compare import words
from harness.compare.cells import LeftOut
from harness.compare.two_sides import CellComparison

if TYPE_CHECKING:
    from rich.console import Console

_MOST_DIFFERENCES = 12  # all of them are in the files of out=
_LONGEST_VALUE = 34
_STYLES = {"better": "green", "worse": "red"}


def show(found: Sequence[CellComparison], left: Sequence[LeftOut], console: "Console") -> None:
    """Print a table for each cell, what was not decided and why, and what the sides do not have in common."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    for comparison in found:
        console.print(Text(words.title(comparison), style="bold"))
        console.print(Text(words.runs(comparison), style="dim"))
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
        for position, heading in enumerate(words.HEADINGS):
            figures = 0 < position < len(words.HEADINGS) - 1
            table.add_column(heading, justify="right" if figures else "left", overflow="fold")
        informing = False
        for one in comparison.judged:
            if not one.measure.gating and not informing:
                informing = True
                table.add_section()
            *cells, verdict = words.row(one)
            style = _STYLES.get(one.verdict.word, "")
            table.add_row(
                *map(Text, cells), Text(verdict, style=style), style="" if one.measure.gating else "dim"
            )
        console.print(table)
        for sentence in words.notes(comparison):
            console.print(Text(sentence))
        differing = comparison.differences
        if differing:
            console.print(Text("Not the same on both sides:"))
        for other in differing[:_MOST_DIFFERENCES]:
            console.print(Text(f"  {other.name}: {_short(other.baseline)} → {_short(other.candidate)}"))
        if len(differing) > _MOST_DIFFERENCES:
            console.print(Text(f"  and {len(differing) - _MOST_DIFFERENCES} more (out=FOLDER writes all)"))
        console.print()
    for sentence in words.not_compared(left):
        console.print(Text(sentence, style="red"))


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 1] + "…"
