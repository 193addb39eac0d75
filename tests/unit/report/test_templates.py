"""Templates: each is part of the page."""

import re
from pathlib import Path

from harness.report import write as write_module
from harness.report.script import page_script

FOLDER = Path(write_module.__file__).parent / "templates"
_USED = re.compile(r'{% (?:include|from) "([^"]+)"')


def reached(name: str, found: set[str]) -> set[str]:
    if name not in found:
        found.add(name)
        for used in _USED.findall((FOLDER / name).read_text(encoding="utf-8")):
            reached(used, found)
    return found


def test_every_template_is_reached_from_the_page():
    there = {str(path.relative_to(FOLDER)) for path in FOLDER.rglob("*") if path.is_file()}
    scripts = {name for name in there if name.endswith(".js")}
    assert there - scripts == reached("report.html.j2", set())
    assert all((FOLDER / name).read_text(encoding="utf-8") in page_script().text for name in scripts)
