"""The parts of a page, built one by one: a fault in one costs that part, never the report."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from harness.core.errors import HarnessError, RecordError
from harness.report.figure import Figure, FigureSection

Part = TypeVar("Part")


@dataclass(frozen=True, slots=True)
class Missing:
    """What stands in the place of a part that could not be built."""

    title: str
    sentence: str


class Parts:
    """Builds parts and keeps what is missing, by place in the page."""

    def __init__(self) -> None:
        self.missing: dict[str, list[Missing]] = defaultdict(list)

    def section_or_reason(self, place: str, title: str, build: Callable[[], Part], otherwise: Part) -> Part:
        """What `build` gives; after a fault in it `otherwise`, and the reason is kept.

        Raises RecordError as it comes: a damaged file has to be restored, and its message says which.
        """
        try:
            return build()
        except RecordError:
            raise
        except Exception as fault:
            self.missing[place].append(Missing(title, reason_for(fault)))
            return otherwise

    def listed(self, place: str, title: str, build: Callable[[], list[Part]]) -> list[Part]:
        """The same of a list: nothing after a fault."""
        return self.section_or_reason(place, title, build, [])

    def figures(self, place: str, title: str, build: Callable[[], Sequence[Figure | None]]) -> list[Figure]:
        """Those that there is something to draw for, drawn at once, so that what cannot be drawn is found here."""

        def drawn() -> list[Figure]:
            found = [figure for figure in build() if figure is not None]
            for figure in found:
                _ = figure.svg
            return found

        return self.listed(place, title, drawn)

    def sections(
        self, place: str, title: str, build: Callable[[], list[FigureSection]]
    ) -> list[FigureSection]:
        """Sections whose figures are drawn at once: one that cannot be costs neither the words nor the others."""
        return [
            replace(section, figures=[drawn for one in section.figures for drawn in self._drawn(place, one)])
            for section in self.listed(place, title, build)
        ]

    def _drawn(self, place: str, figure: Figure) -> list[Figure]:
        return self.figures(place, figure.title, lambda: [figure])


def reason_for(fault: Exception) -> str:
    """Why there is nothing, in words."""
    told = f"{fault}" if isinstance(fault, HarnessError) else f"{type(fault).__name__}: {fault}"
    return (
        f"This cannot be told of these runs ({told.rstrip('.')}). The rest of this report holds without it."
    )
