"""The nightly workflow: the form that GitHub requires, and no line that the documentation does not show."""

import re

import yaml

from tests.support.command_line import ROOT

TEXT = (ROOT / ".github" / "workflows" / "nightly.yml").read_text()


def test_the_workflow_has_the_form_that_github_asks_for():
    # YAML 1.1 takes a bare `on` for a truth value.
    flow = yaml.safe_load(re.sub(r"^on:", "triggers:", TEXT, flags=re.MULTILINE))
    assert isinstance(flow, dict)
    assert set(flow) <= {"name", "triggers", "permissions", "concurrency", "jobs", "env", "defaults"}
    (schedule,) = flow["triggers"]["schedule"]
    assert re.fullmatch(r"(\S+ ){4}\S+", schedule["cron"])
    for job in flow["jobs"].values():
        assert job["runs-on"] and 0 < job["timeout-minutes"] <= 360
        for step in job["steps"]:
            assert ("uses" in step) != ("run" in step)
            assert set(step) <= {"uses", "run", "name", "with", "if", "env", "id"}
            if "uses" in step:
                assert re.fullmatch(r"[\w-]+/[\w-]+@v\d+", step["uses"])
    uploads = [
        step for job in flow["jobs"].values() for step in job["steps"] if "upload" in step.get("uses", "")
    ]
    assert uploads and all(
        step["if"] == "always()" for step in uploads
    )  # a night that failed needs its report most


def test_every_line_it_runs_is_documented():
    lines = re.findall(r"^ *-? *run: (.+)$", TEXT, re.MULTILINE)
    assert lines
    pages = "\n".join(path.read_text() for path in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")))
    for line in lines:
        assert f"`{line}`" in pages or f"\n{line}\n" in pages, line
