"""The night as JUnit XML, which every CI system reads: a test case for each figure of each cell."""

from pathlib import Path
from xml.etree import ElementTree

from harness.gate.findings import INCONCLUSIVE, REGRESSED, Outcome


def junit(outcome: Outcome) -> bytes:
    """A suite; regressed figures are failures, undecided ones are skipped with their reason."""
    counts = {word: sum(one.word == word for one in outcome.findings) for word in (REGRESSED, INCONCLUSIVE)}
    suite = ElementTree.Element(
        "testsuite",
        name=f"gate {outcome.night}",
        tests=str(len(outcome.findings)),
        failures=str(counts[REGRESSED]),
        skipped=str(counts[INCONCLUSIVE]),
        errors="0",
    )
    for finding in outcome.findings:
        case = ElementTree.SubElement(
            suite, "testcase", classname=_clean(finding.cell), name=_clean(finding.title)
        )
        if finding.word == REGRESSED:
            ElementTree.SubElement(case, "failure", message=_clean(finding.why))
        elif finding.word == INCONCLUSIVE:
            ElementTree.SubElement(case, "skipped", message=_clean(finding.why))
    for caution in outcome.cautions:
        ElementTree.SubElement(suite, "system-out").text = _clean(caution)
    suites = ElementTree.Element("testsuites")
    suites.append(suite)
    ElementTree.indent(suites)
    return ElementTree.tostring(suites, encoding="utf-8", xml_declaration=True) + b"\n"


def write_junit(outcome: Outcome, folder: Path) -> Path:
    """Write folder/junit.xml; returns its path."""
    path = folder / "junit.xml"
    path.write_bytes(junit(outcome))
    return path


def _clean(text: str) -> str:
    """Without the control characters that XML 1.0 has no way to write."""
    return "".join(c for c in text if c >= " " or c in "\t\n")
