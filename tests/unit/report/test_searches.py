"""Searches and sweeps in a report: the table, the bracket, the figure, and the answer at the top."""

import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hydra import compose, initialize_config_module

from harness.config import register_schemas, typed
from harness.core.errors import RecordError
from harness.records.reader import find_runs
from harness.records.searches import FOLDER, read_search, searches_of
from harness.report import write_report
from harness.report.__main__ import main
from harness.report.searches import section
from harness.search.options import ProbeOptions
from harness.search.results import Probe, Result
from tests.support.synthetic_runs import write_run

SEARCH = ("load=search", "slo.ttft_p95_ms=500", "slo.ttft_ms=900")


def limit(value: float | None) -> dict[str, Any]:
    met = value is not None and value <= 500
    return {
        "key": "ttft_p95_ms",
        "limit_ms": 500.0,
        "value_ms": value,
        "samples": 90,
        "enough": True,
        "met": met,
    }


def write_search(
    results_dir: Path,
    probes: list[tuple[float, float | None, str | None]],
    overrides: tuple[str, ...] = SEARCH,
) -> Path:
    """A search whose probes are (load, p95 of TTFT, why it was stopped), each with a run of its own."""
    register_schemas()
    with initialize_config_module("conf", version_base="1.3"):
        config = typed(compose("config", overrides=list(overrides)))
    assert isinstance(config.load, ProbeOptions)
    held = "slo.ttft_p95_ms=500" in overrides
    made = []
    for number, (value, p95, stopped) in enumerate(probes, 1):
        run = f"r{number}"
        asked = {"load": {"name": "poisson", "rate": value}, "slo": asdict(config.slo)}
        write_run(results_dir, run, config=asked, sweep="s1")
        met = (p95 is not None and p95 <= 500 and not stopped) if held else None
        summary = {
            "slo_percentiles": [limit(p95)] if held else [],
            "slo_attainment": (0.995 if met else 0.5) if held else None,
            "output_tokens_per_s": 100 * value,
        }
        remarks = "client short of CPU" if number == 1 else ""
        made.append(Probe(value, run, "complete", met, "x", remarks, True, stopped, summary))
    path = results_dir / FOLDER / "r0.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    Result("r0", "s1", config.load, config, tuple(made)).write(path)
    return path


PROBES = [
    (2, 120.0, None),
    (4, None, "41 requests in flight after 3.0 s"),
    (3, 420.0, None),
    (3, 433.0, None),
]


def test_the_table_says_what_each_probe_found_and_which_is_the_answer(tmp_path: Path) -> None:
    write_search(tmp_path, PROBES)
    runs = find_runs(["r*"], tmp_path)
    (search,) = searches_of(runs)
    told = section(search, runs)
    assert [(m.heading, m.unit) for m in told.measures] == [
        ("TTFT p95", "ms, limit 500"),
        ("Within SLO", "of requests"),
        ("Output", "tokens/s"),
    ]
    assert [row.value for row in told.rows] == ["2", "4", "3", "3"]
    assert [row.verdict for row in told.rows] == ["met", "missed", "met", "met"]
    assert [row.cells[0] for row in told.rows] == [
        ("120", False),
        ("–", True),
        ("420", False),
        ("433", False),
    ]
    assert [row.cells[1] for row in told.rows][:2] == [("99.5 %", False), ("50.0 %", True)]
    assert [row.is_answer for row in told.rows] == [False, False, True, True]
    assert [row.why for row in told.rows] == [
        "client short of CPU",
        "41 requests in flight after 3.0 s",
        "",
        "",
    ]
    assert told.bracket == (
        "The limit lies between 3 (met) and 4 (missed): 1 sessions/s wide, 33 % of the answer."
    )


def test_the_page_opens_with_the_answer_and_holds_the_figure_with_its_data(tmp_path: Path) -> None:
    write_search(tmp_path, PROBES)
    html = write_report(find_runs(["r*"], tmp_path), tmp_path / "report").read_text()
    sentence = "The highest load found within the SLO is 3 sessions/s; 4 missed it"
    opening = html[: html.index('id="over-time"')]
    assert opening.count(sentence) == 2  # the box at the top, and the section
    assert opening.index(sentence) < opening.index('<section id="section-r0"')
    assert "asked different things" not in html and "first token after" not in html
    assert opening[opening.index('<section id="section-r0"') :].count('class="chosen"') == 2
    name = "against-load-chat-rate"
    assert f'<a href="#{name}">' in opening
    figure = re.search(rf'<figure id="{name}".*?</figure>', html, re.DOTALL)
    assert figure and "SLO" in figure.group() and "sessions/s" in figure.group()
    assert "the answer of the search" in figure.group()
    data = pd.read_csv(tmp_path / "report" / "data" / f"{name}.csv")
    assert data["load"].tolist() == [2, 3, 4]
    assert data["runs"].tolist() == ["r1", "r3 r4", "r2"]


def test_a_sweep_without_limits_shows_what_its_rates_cost(tmp_path: Path) -> None:
    write_search(tmp_path, [(1, None, None), (2, None, None)], ("load=sweep_rate",))
    runs = find_runs(["r*"], tmp_path)
    told = section(searches_of(runs)[0], runs)
    assert [m.heading for m in told.measures] == ["TTFT p95", "Output"]
    assert [row.cells[0][0] for row in told.rows] == ["80.0", "80.0"]  # the runs' own
    assert told.bracket is None and not any(row.is_answer for row in told.rows)


def test_other_runs_are_told_beside_a_search(tmp_path: Path) -> None:
    write_search(tmp_path, PROBES)
    write_run(tmp_path, "r9")
    html = write_report(find_runs(["r*"], tmp_path), tmp_path / "report").read_text()
    assert "first token after 80.0 ms" in html
    alone = write_report(find_runs(["r9"], tmp_path), tmp_path / "alone").read_text()
    assert "section-r0" not in alone


def test_the_command_prints_what_was_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_search(tmp_path, PROBES)
    assert main([f"results_dir={tmp_path}"]) == 0
    assert "The highest load found within the SLO is 3 sessions/s" in capsys.readouterr().out


@pytest.mark.parametrize("damage", ["", "{}", '{"schema": 99}', '{"schema": 1, "config": null}'])
def test_a_damaged_search_is_named(tmp_path: Path, damage: str) -> None:
    path = write_search(tmp_path, PROBES)
    path.write_text(damage)
    with pytest.raises(RecordError, match=r"r0\.json"):
        read_search(path)
