"""What a figure needs where it stands alone, outside a page: a title, a legend, and white behind them.

Lengths are points of 1/72 inch, which are the user units of matplotlib's SVG documents.
"""

import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from harness.report.palette import DASH_ARRAYS, INK, PALETTE

TITLE, LEGEND = 11, 8.5  # sizes of letters
GAP = 7.2  # around the title, and before a legend
LINE_WIDTH = 1.7
_TITLE_LINE, _ENTRY, _FURTHER_LINE = 14.4, 14.0, 10.4  # heights
_SAMPLE = 18  # length of a legend's line
_TITLE_LETTERS, _LEGEND_LETTERS = 50, 68  # of a line
_TWO_COLUMNS = 30  # letters of the longest entry of a legend that has two
_FONT = "DejaVu Sans, Helvetica, Arial, sans-serif"


@dataclass(frozen=True)
class Surroundings:
    """Title and legend, broken into lines. entries: by number of series."""

    title: list[str]
    entries: dict[int, list[str]]

    @property
    def columns(self) -> int:
        """Of the legend."""
        longest = max((len(line) for lines in self.entries.values() for line in lines), default=0)
        return 2 if len(self.entries) > 1 and longest <= _TWO_COLUMNS else 1

    @property
    def above(self) -> float:
        """Height of the title."""
        return len(self.title) * _TITLE_LINE + GAP if self.title else 0.0

    @property
    def below(self) -> float:
        """Height of the legend."""
        rows = list(self.entries.values())[:: self.columns]
        return sum(map(_height, rows)) + (GAP if rows else 0)


def surroundings(title: str, legend: Mapping[int, str]) -> Surroundings:
    """legend: words by number of series."""
    entries = {place: textwrap.wrap(printable(words), _LEGEND_LETTERS) for place, words in legend.items()}
    return Surroundings(textwrap.wrap(printable(title), _TITLE_LETTERS), entries)


def standing_alone(document: str, around: Surroundings) -> str:
    """A document of matplotlib's inside one that adds title, legend and a white ground."""
    inner = document[document.index("<svg") :]
    size = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', inner)
    if size is None:
        raise ValueError("no SVG document with a viewBox that begins at 0 0")
    width, height = (float(length) for length in size.groups())
    inner = re.sub(r'(<svg[^>]*?) width="[^"]*"', rf'\1 width="{width:g}"', inner, count=1)
    inner = re.sub(r'(<svg[^>]*?) height="[^"]*"', rf'\1 height="{height:g}"', inner, count=1)
    inner = re.sub(r'<g id="series-\d+"', "<g", inner)  # several lines share one: no identifier
    inner = inner.replace("<svg", f'<svg y="{around.above:g}"', 1)
    whole = around.above + height + around.below
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {whole:g}" '
        f'width="{width:g}pt" height="{whole:g}pt">\n'
        f'<rect width="100%" height="100%" fill="white"/>\n'
        f"{_title(around.title)}{inner.strip()}\n{_legend(around, around.above + height, width)}</svg>\n"
    )


def _title(lines: Sequence[str]) -> str:
    return "".join(
        _text(GAP, GAP + number * _TITLE_LINE - 3, line, f'font-size="{TITLE}" font-weight="bold"')
        for number, line in enumerate(lines, 1)
    )


def _legend(around: Surroundings, top: float, width: float) -> str:
    """Column by column, as matplotlib fills its own."""
    entries = list(around.entries.items())
    rows = -(-len(entries) // around.columns)
    drawn = []
    for column in range(around.columns):
        left, y = GAP + column * width / around.columns, top + GAP
        for place, lines in entries[column * rows : (column + 1) * rows]:
            middle = y + LEGEND / 2
            dashes = DASH_ARRAYS[place // len(PALETTE) % len(DASH_ARRAYS)]
            drawn.append(
                f'<path d="M {left:g} {middle:g} h {_SAMPLE}" stroke="{PALETTE[place % len(PALETTE)]}" '
                f'stroke-width="{LINE_WIDTH}" stroke-dasharray="{dashes}"/>\n'
            )
            for number, line in enumerate(lines):
                baseline = y + LEGEND - 1 + number * _FURTHER_LINE
                drawn.append(_text(left + _SAMPLE + GAP, baseline, line, f'font-size="{LEGEND}"'))
            y += _height(lines)
    return "".join(drawn)


def _height(lines: Sequence[str]) -> float:
    return _ENTRY + max(len(lines) - 1, 0) * _FURTHER_LINE


def _text(x: float, y: float, words: str, style: str) -> str:
    return f'<text x="{x:g}" y="{y:g}" font-family="{_FONT}" fill="{INK}" {style}>{escape(words)}</text>\n'


def printable(words: str) -> str:
    """Without what no drawing can show and no XML file may hold: control characters, halves of surrogate pairs."""
    return "".join(letter if letter.isprintable() else " " for letter in words)
