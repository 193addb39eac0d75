"""Cells of the table of runs."""

import dataclasses
from pathlib import Path

import pytest

from harness.records.reader import read_run
from harness.report.table import cells, columns_for
from tests.support.synthetic_runs import Schedule, write_run


def test_columns_without_any_figure_are_left_out(tmp_path: Path):
    write_run(tmp_path, "r1")
    run = read_run("r1", tmp_path)
    plain = dataclasses.replace(run, summary={**run.summary, "slo_attainment": None, "quality": {}})
    limited = dataclasses.replace(
        run,
        summary={
            **run.summary,
            "slo_attainment": 0.25,
            "quality": {"perplexity": 16.5, "perplexity_interval": [15.0, 18.0]},
        },
    )
    assert not {"Within SLO", "Perplexity"} & {column.heading for column in columns_for([plain])}
    shown = {cell.heading: cell.text for cell in cells(limited, columns_for([plain, limited]))}
    assert shown["Within SLO"] == "25 %"
    assert shown["Perplexity"] == "16.50 (15.00–18.00)"


@pytest.mark.parametrize(("above", "words"), [(True, ""), (False, ", not above chance")])
def test_a_task_stands_with_its_interval_and_whether_it_is_more_than_guessing(
    tmp_path: Path, above: bool, words: str
):
    write_run(tmp_path, "r1")
    run = read_run("r1", tmp_path)
    found = {"reasoning": 0.61, "reasoning_interval": [0.54, 0.67], "reasoning_above_chance": above}
    told = dataclasses.replace(run, summary={**run.summary, "quality": found})
    shown = {cell.heading: cell.text for cell in cells(told, columns_for([told]))}
    assert shown["Reasoning"] == f"61 % (54 %–67 %){words}"
    assert "Recall" not in shown


def test_cost_stands_with_its_currency_and_is_spoilt_with_the_rate(tmp_path: Path):
    write_run(tmp_path, "r1", Schedule(requests=8), price=3.6)  # too few requests to trust the rate
    run = read_run("r1", tmp_path)
    (cell,) = [cell for cell in cells(run, columns_for([run])) if "Cost" in cell.heading]
    assert cell.heading == "Cost, USD"
    assert cell.text.startswith(f"{3.6 / 3600 * 1e6 / run.summary['output_tokens_per_s']:.2f} / ")
    assert cell.text.endswith(" / 0.900")  # 3.60 an hour among 4 users
    assert cell.spoilt_by
