"""Writing a report: one HTML file that needs nothing else, and beside it the figures as files and their data."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from harness.core.errors import RecordError
from harness.records.reader import Run

_TEMPLATES = Path(__file__).parent / "templates"


def write_report(runs: Sequence[Run], folder: Path) -> Path:
    """Write folder/report.html, folder/data/*.csv and folder/figures/*.svg and *.png; returns the HTML file's path.

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
    try:
        data, drawn = folder / "data", folder / "figures"
        for place in (data, drawn):
            shutil.rmtree(place, ignore_errors=True)  # of an earlier report in the same place
            place.mkdir(parents=True)
        for one in (*figures, *content["quality_costs"]):
            one.data.to_csv(data / f"{one.name}.csv", index=False, float_format="%.6g")
        words = [label for _, label in content["series"]]
        for figure in figures:
            svg, png = figure.files(words)
            (drawn / f"{figure.name}.svg").write_bytes(svg)
            (drawn / f"{figure.name}.png").write_bytes(png)
        path = folder / "report.html"
        unfinished = path.with_suffix(".part")
        unfinished.write_text(html, encoding="utf-8")
        unfinished.replace(path)
    except OSError as error:
        raise RecordError(
            f"The report cannot be written to {folder} ({error.strerror or error}). "
            "Free some space or its permissions, or name another folder."
        ) from error
    return path
