"""What a gate found: a finding for each figure of each cell, and the night's outcome."""

from dataclasses import dataclass

PASSED, REGRESSED, INCONCLUSIVE = "passed", "regressed", "inconclusive"


@dataclass(frozen=True, slots=True)
class Finding:
    """One figure (path, title, unit) of one cell.

    baseline, candidate: medians over the runs of a look (of two looks their geometric mean), None where there are
    none. worsening: relative change to the worse. p: of both looks together where there were two. visible: the least
    worsening that would have been found.
    looks: how often it was measured. decisive: it speaks for the whole cell, whose figures are not judged.
    """

    cell: str
    path: str
    title: str
    unit: str
    word: str
    why: str
    baseline: float | None = None
    candidate: float | None = None
    worsening: float | None = None
    p: float | None = None
    visible: float | None = None
    looks: int = 1
    decisive: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """The night. cautions: what a reader must know beside the findings, such as runs with failed checks."""

    night: str
    mode: str
    findings: tuple[Finding, ...]
    cautions: tuple[str, ...] = ()

    @property
    def word(self) -> str:
        """regressed where any figure is, else inconclusive where any is or there are none, else passed."""
        words = {finding.word for finding in self.findings}
        if REGRESSED in words:
            return REGRESSED
        return INCONCLUSIVE if INCONCLUSIVE in words or not words else PASSED
