"""A fault in one part of a report costs that part, and says so in its place."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from matplotlib.artist import Artist

from harness.core.errors import RecordError
from harness.records.reader import Run, find_runs
from harness.report import page
from harness.report.canvas import drawing
from harness.report.figure import Figure, FigureSection
from harness.report.write import write_report
from tests.support.synthetic_runs import Schedule, write_run

# By the builder that fails: the title that stands in its place.
BUILDERS = {
    "advice_on": "What to take",
    "sections": "What to take",
    "outside_studies": "What a longer context costs",
    "frontier_figures": "What memory buys",
    "questions": "What was asked",
    "against_load": "What more load costs",
    "scaling_sections": "What a longer context costs",
    "tradeoff_sections": "How much of the past must stay",
    "comparison_sections": "Side by side",
    "cost_sections": "What settings cost in quality",
    "latency_throughput": "The frontier of latency and throughput",
    "ttft_distribution": "How long users wait",
    "token_gaps": "How long users wait",
    "memory_figures": "Memory",
    "perplexity_by_position": "Quality against memory",
    "load_over_time": "Over time",
    "memory_over_time": "Over time",
    "timeline": "Every request of",
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    folder = tmp_path_factory.mktemp("results")
    for engine in ("openvino", "vllm"):
        write_run(folder, f"r-{engine}", Schedule(requests=8), backend=engine)
    return find_runs(["r*"], folder)


@pytest.mark.parametrize("builder", BUILDERS)
def test_each_part_can_fail_alone(
    runs: list[Run], builder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def fails(*_: Any) -> None:
        raise KeyError("<b>spoils")

    monkeypatch.setattr(page, builder, fails)
    html = write_report(runs, tmp_path / "report").read_text()
    assert f'<section><h2 class="wrap">{BUILDERS[builder]}' in html
    assert "This cannot be told of these runs (KeyError: &#39;&lt;b&gt;spoils&#39;)." in html
    assert '<section id="runs">' in html and '<section id="details">' in html


def test_nothing_is_missing_where_nothing_fails(runs: list[Run], tmp_path: Path):
    assert "cannot be told" not in write_report(runs, tmp_path / "report").read_text()


def test_a_figure_of_a_section_that_cannot_be_drawn_costs_that_figure_alone(
    runs: list[Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    class Undrawable(Artist):
        def draw(self, _: object) -> None:
            raise ValueError("no such colour")

    def figure(name: str) -> Figure:
        drawn, (axes,) = drawing()
        axes.plot([1, 2], [3, 4])
        return Figure(name, f"The title of {name}", "", drawn, pd.DataFrame({"x": [1]}))

    good, bad = figure("good"), figure("bad")
    assert bad.drawn is not None
    bad.drawn.axes[0].add_artist(Undrawable())
    for builder in ("scaling_sections", "tradeoff_sections"):
        section = FigureSection(builder, "Growth", [f"The words of {builder}."], [bad, good])
        monkeypatch.setattr(page, builder, lambda _, section=section: [section])
    html = write_report(runs, tmp_path / "report").read_text()
    told = '<section><h2 class="wrap">The title of bad</h2><p class="caution wrap">This cannot be told of these runs '
    assert html.count(f"{told}(ValueError: no such colour).") == 2
    assert "The words of scaling_sections." in html and "The words of tradeoff_sections." in html
    assert html.count('<figure id="good"') == 2 and '<figure id="bad"' not in html
    assert {path.name for path in (tmp_path / "report").rglob("good.*")} == {
        "good.csv",
        "good.png",
        "good.svg",
    }
    assert not list((tmp_path / "report").rglob("bad.*"))


def test_a_search_and_the_answer_can_fail_alone(
    runs: list[Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def fails(*_: Any) -> None:
        raise ValueError("no")

    monkeypatch.setattr(page, "answer", fails)
    monkeypatch.setattr(page, "searches_of", lambda _: [None])
    html = write_report(runs, tmp_path / "report").read_text()
    opening = html[: html.index("</header>")]
    assert '<p class="caution">This cannot be told of these runs (ValueError: no).' in opening
    assert '<section><h2 class="wrap">The search' in html


@pytest.mark.parametrize(
    "change",
    [
        {"config": {"slo": {"ttft_p95_ms": "soon"}}},
        {"config": {"slo": "none"}},
        {"config": {"workload": "chat"}},
        {"config": {"load": {"name": "poisson", "rate": "fast"}}},
        {"config": {"load": "closed"}},
        {"validity": [{"check": "noise", "ok": False}]},
    ],
)
def test_an_odd_record_costs_no_report(tmp_path: Path, change: dict[str, Any]):
    write_run(tmp_path, "r1", Schedule(requests=8), **change)
    write_run(tmp_path, "r2", Schedule(requests=8, slots=2))
    html = write_report(find_runs(["r*"], tmp_path), tmp_path / "report").read_text()
    assert '<section id="runs">' in html and '<figure id="ttft"' in html


@pytest.mark.parametrize(
    ("look", "fault"),
    [
        ({"wrong": 1}, "TypeError"),
        ({"ns": 1, "arithmetic_ms": 0.0, "copying_ms": 0.0}, "ZeroDivisionError"),
    ],
)
def test_a_pace_that_cannot_be_read_costs_one_sentence(tmp_path: Path, look: dict[str, Any], fault: str):
    pace = {"pace": {"before": look, "after": look}, "config": {"hardware": {"drift_limit": 1.1}}}
    write_run(tmp_path, "r1", Schedule(requests=8), **pace)
    html = write_report(find_runs(["r1"], tmp_path), tmp_path / "report").read_text()
    assert f"Whether the machine kept its speed: This cannot be told of these runs ({fault}:" in html
    assert "first token after" in html


def test_a_damaged_file_is_named_and_not_passed_over(runs: list[Run], tmp_path: Path):
    write_run(tmp_path, "r1")
    (tmp_path / "runs" / "r1" / "events.parquet").write_bytes(b"damaged")
    with pytest.raises(RecordError, match=r"events\.parquet is damaged"):
        write_report(find_runs(["r1"], tmp_path), tmp_path / "report")
