"""A figure of a report: what was drawn, the data it was drawn from, and its forms in the page and beside it."""

import hashlib
import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from harness.records.reader import Run
from harness.report.alone import standing_alone, surroundings
from harness.report.canvas import for_page, to_document, to_png

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure as Drawing

Coloured = tuple[int, Run]  # the series a run belongs to

_LONGEST_NAME = 60


@dataclass(frozen=True)
class Figure:
    """A drawn figure. name: of its files and anchor. reading: how to read it.

    series: which of the page's series are drawn. legend: words by number of series, where they are none of these, and
    runs: the ids of those that each of them stands for, so that it can be hidden with them. document: an SVG
    document of matplotlib's, of what is `drawn` no more (None): such a figure has no PNG.
    """

    name: str
    title: str
    reading: str
    drawn: "Drawing | None"
    data: "pd.DataFrame"
    series: list[int] = field(default_factory=list)
    legend: dict[int, str] = field(default_factory=dict)
    runs: dict[int, list[str]] = field(default_factory=dict)
    document: str = ""

    @property
    def has_png(self) -> bool:
        """Whether there is more of it than an SVG."""
        return self.drawn is not None

    @cached_property
    def _document(self) -> str:
        return self.document if self.drawn is None else to_document(self.drawn, self.name)

    @cached_property
    def svg(self) -> str:
        """As it stands in the page: without title and legend, which the page shows in its own font."""
        return for_page(self._document, self.name)

    def files(self, page_series: list[str]) -> tuple[str, bytes | None]:
        """An SVG, and a PNG if it has one, that stand alone, with title and legend.

        page_series: words of the page's series.

        To be called last: the drawing keeps what is added.
        """
        legend = self.legend or {place: page_series[place] for place in self.series}
        around = surroundings(self.title, legend)
        svg = standing_alone(self._document, around)
        return svg, None if self.drawn is None else to_png(self.drawn, around)


@dataclass(frozen=True)
class FigureSection:
    """Figures under what they say in words. id: of the section in the page."""

    id: str
    title: str
    sentences: list[str]
    figures: list[Figure]


def file_name(*words: str) -> str:
    """Words as one name that is safe in a file system and an address; what had to go is told by a digest."""
    whole = "-".join(words)
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", whole)[:_LONGEST_NAME]
    return name if name == whole else f"{name}-{hashlib.sha256(whole.encode()).hexdigest()[:6]}"
