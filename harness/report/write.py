"""Writing a report: one HTML file that needs nothing else, and beside it the figures as files and their data."""

import re
from collections.abc import Sequence
from pathlib import Path

from harness.core.errors import RecordError
from harness.records.reader import Run

_TEMPLATES = Path(__file__).parent / "templates"
_FILE = re.compile(r'href="((?:data|figures)/[A-Za-z0-9_.-]+)"')


def write_report(runs: Sequence[Run], folder: Path) -> Path:
    """Write folder/report.html, folder/data/*.csv and folder/figures/*.svg and *.png; returns the HTML file's path.

    Of an earlier report in the same folder what the new one lacks is removed, and nothing else.

    Reads the runs' tables only. Everything that came from a model, a server or a configuration is escaped,
    and the page's own policy forbids the network and every script but the page's one. Raises RecordError where
    there is no run, a table is damaged, or the folder cannot be written.
    """
    import jinja2

    from harness.report.page import page, swatch

    if not runs:
        raise RecordError("There is no run to report. Make one with: python -m harness")
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.globals["line_of"] = swatch
    content = page(runs)
    html = environment.get_template("report.html.j2").render(content)
    figures = [
        *(figure for section in content["scaling"] for figure in section.figures),
        *(figure for group in content["figures"].values() for figure in group),
        *(row.timeline for row in content["rows"] if row.timeline),
    ]
    path = folder / "report.html"
    try:
        earlier = _beside(path)
        data, drawn = folder / "data", folder / "figures"
        for place in (data, drawn):
            place.mkdir(parents=True, exist_ok=True)
        for one in (*figures, *content["quality_costs"]):
            one.data.to_csv(data / f"{one.name}.csv", index=False, float_format="%.6g")
        words = [label for _, label in content["series"]]
        for figure in figures:
            svg, png = figure.files(words)
            (drawn / f"{figure.name}.svg").write_text(svg, encoding="utf-8")
            if png is not None:
                (drawn / f"{figure.name}.png").write_bytes(png)
        unfinished = path.with_suffix(".part")
        unfinished.write_text(html, encoding="utf-8")
        unfinished.replace(path)
        for name in earlier - _beside(path):
            (folder / name).unlink(missing_ok=True)
    except OSError as error:
        raise RecordError(
            f"The report cannot be written to {folder} ({error.strerror or error}). "
            "Free some space or its permissions, or name another folder."
        ) from error
    return path


def _beside(page: Path) -> set[str]:
    """The files that a report's page links to; none where there is no page. Nothing else in its folder is its own."""
    if not page.is_file():
        return set()
    return set(_FILE.findall(page.read_text(encoding="utf-8", errors="replace")))
