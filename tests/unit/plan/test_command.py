"""The command as a whole: what it prints, writes and refuses."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from harness.plan.__main__ import help_text, main
from harness.plan.figure import short


@pytest.fixture(autouse=True)
def _eighty_columns(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "80")


def test_a_wish_that_does_not_fit(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["users=80", "context=4000", f"out={tmp_path}"]) == 0
    out = capsys.readouterr().out
    assert "80 users × 4,000 tokens do not fit" in out
    assert "41.9 GB" in out
    assert "kv_dtype=fp8" in out
    assert all(len(line) <= 80 for line in out.splitlines() if str(tmp_path) not in line)
    record = json.loads((tmp_path / "plan.json").read_text())
    assert record["kv"]["bytes_per_token"] == 131_072
    assert record["wish"]["fits"] is False
    assert {one["overrides"] for one in record["remedies"]} >= {"users=13", "weight_dtype=int4"}
    grid = {(one["users"], one["context"]): one["bytes"] for one in record["needed_bytes"]}
    assert grid[80, 4000] == record["wish"]["needed_bytes"]
    html = (tmp_path / "plan.html").read_text()
    assert "http://" not in re.sub(r"https?://www\.w3\.org/\S+", "", html)
    assert "<script" not in html
    (svg,) = re.findall(r"<svg.*?</svg>", html, re.DOTALL)
    texts = [node.text for node in ElementTree.fromstring(svg).iter() if node.tag.endswith("text")]
    assert short(grid[80, 4000]) in texts


def test_a_wish_that_fits_has_no_remedies(capsys: pytest.CaptureFixture[str]):
    assert main(["model=smollm2-135m", "users=4", "hardware=cpu"]) == 0
    out = capsys.readouterr().out
    assert "tokens fit." in out
    assert "would help" not in out


def test_names_are_escaped(tmp_path: Path):
    assert main(["model.name='<b>x</b>'", f"out={tmp_path}"]) == 0
    assert "<b>x</b>" not in (tmp_path / "plan.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["context=99999"], 2, "at most 32768"),
        (["runs=[r1]", "results_dir=nowhere"], 1, "no run 'r1'"),
        (["out=/dev/null/plan"], 1, "out=FOLDER"),
    ],
)
def test_errors_are_one_line(
    arguments: list[str], status: int, words: str, capsys: pytest.CaptureFixture[str]
):
    assert main(arguments) == status
    err = capsys.readouterr().err
    assert err.startswith("Error: ")
    assert err.count("\n") == 1
    assert words in err


def test_help_names_every_choice_within_80_columns():
    text = help_text()
    assert all(f"    {name}" in text for name in ("mistral-7b", "deepseek-v3", "l4", "h200", "cpu", "window"))
    assert max(map(len, text.splitlines())) <= 80


def test_short_bytes():
    assert [short(n) for n in (14.5e9, 999.6e6, 1.3e12, 149.4e9, 12)] == [
        "14.5G",
        "1.0G",
        "1.3T",
        "149G",
        "12",
    ]
