"""Writing a report: one HTML file that needs nothing else, and the figures' data beside it."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from harness.core.errors import RecordError
from harness.records.reader import Run

_TEMPLATES = Path(__file__).parent / "templates"


def write_report(runs: Sequence[Run], folder: Path) -> Path:
    """Write folder/report.html and folder/data/*.csv; returns the path of the HTML file.

    Reads the runs' tables only. Everything that came from a model, a server or a configuration is escaped,
    and the page's own policy forbids the network and every script but the page's one. Raises RecordError where
    there is no run, a table is damaged, or the folder cannot be written.
    """
    import jinja2

    from harness.report.page import page

    if not runs:
        raise RecordError("There is no run to report. Make one with: python -m harness")
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    content = page(runs)
    html = environment.get_template("report.html.j2").render(content)
    figures = [
        *(section.figure for section in content["searches"]),
        *(figure for section in content["scaling"] for figure in section.figures),
        *(figure for group in content["figures"].values() for figure in group),
        *content["quality_costs"],
        *(row.timeline for row in content["rows"] if row.timeline),
    ]
    try:
        data = folder / "data"
        shutil.rmtree(data, ignore_errors=True)  # of an earlier report in the same place
        data.mkdir(parents=True)
        for figure in figures:
            figure.data.to_csv(data / f"{figure.name}.csv", index=False, float_format="%.6g")
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
