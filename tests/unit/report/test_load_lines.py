"""What is drawn over the load: points by hand, goodput against numpy, the frontier by its definition."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.metrics.slo import SloOptions
from harness.metrics.throughput import goodput
from harness.metrics.window import Window
from harness.records.reader import Run, read_run
from harness.report.against_load import against_load
from harness.report.latency_throughput import latency_throughput
from harness.report.load_lines import AT_ONCE, RATE, questions
from tests.support.synthetic_runs import Schedule, write_run

NO_LIMITS: dict[str, Any] = dict.fromkeys(SloOptions.__dataclass_fields__) | {"name": "test"}


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return read_run(write_run(tmp_path_factory.mktemp("runs"), "one", Schedule(jitter=0.4, requests=60)))


def at(
    run: Run,
    name: str,
    load: dict[str, Any],
    tokens_per_s: float = 100.0,
    tpot_ms: float = 20.0,
    engine: str = "openvino",
    **changes: Any,
) -> Run:
    """The run as if it had been made at this load, with these figures."""
    config = {**run.config, "backend": {**run.config["backend"], "name": engine}, "load": load}
    summary = {
        **run.summary,
        "output_tokens_per_s": tokens_per_s,
        "tpot_ms": {"p50": tpot_ms, "p95": 2 * tpot_ms},
    }
    told = {"config": config, "summary": summary, "validity": []} | changes
    return replace(run, id=name, **told)


def closed(concurrency: int) -> dict[str, Any]:
    return {"name": "closed", "concurrency": concurrency}


def test_one_point_a_load_joined_by_engine_with_the_frontier_of_all(measured: Run):
    runs = [
        at(measured, "a1", closed(1), 50, 10),
        at(measured, "a4", closed(4), 150, 20),
        at(measured, "a2", closed(2), 90, 12.5),
        at(measured, "b1", closed(1), 40, 8, engine="vllm"),
        at(measured, "b2", closed(2), 85, 16, engine="vllm"),  # a2 is faster for all and for each
    ]
    (figure,) = latency_throughput(questions(runs))
    assert figure.legend == {0: "openvino", 1: "vllm"}
    assert figure.runs == {0: ["a1", "a2", "a4"], 1: ["b1", "b2"]}
    # the line, its circles and the load beside each point
    assert [figure.svg.count(f'<g data-series="{line}"') for line in (0, 1)] == [1 + 1 + 3, 1 + 1 + 2]
    table = figure.data.set_index("runs")
    assert table["load"].to_dict() == {"a1": 1, "a2": 2, "a4": 4, "b1": 1, "b2": 2}
    assert table["tokens_per_s_per_user"].to_dict() == {"a1": 100, "a2": 80, "a4": 50, "b1": 125, "b2": 62.5}
    assert sorted(table.index[table["on_frontier"]]) == ["a1", "a2", "a4", "b1"]


def test_repeats_of_a_load_are_one_point_of_medians(measured: Run):
    runs = [at(measured, f"r{value}", closed(2), value, 20) for value in (90, 130, 100)]
    runs += [at(measured, "one", closed(1), 60, 10), at(measured, "four", closed(4), 200, 40)]
    (figure,) = latency_throughput(questions(runs))
    assert figure.data["output_tokens_per_s"].tolist() == [60, 100, 200]


def test_two_points_are_no_frontier_and_other_lengths_another_question(measured: Run):
    longer = {**measured.config, "workload": {"name": "chat", "output_tokens": 999, "prompt_tokens": 5}}
    runs = [at(measured, "a", closed(1)), at(measured, "b", closed(2))]
    other = at(measured, "c", closed(4))
    other = replace(other, config={**longer, "load": closed(4)})
    asked = questions([*runs, other])
    assert [len(one.lines[0].points) for one in asked] == [2, 1]
    assert len({one.name for one in asked}) == 2 and "5 + 999 tokens" in asked[1].title
    assert latency_throughput(asked) == []


def test_a_missed_slo_a_spoilt_figure_and_errors_are_told_and_keep_off_the_frontier(measured: Run):
    strict = NO_LIMITS | {"ttft_p50_ms": 1.0}
    spoilt = {"check": "x", "ok": False, "problem": "noise", "spoils": ["output_tokens_per_s"]}
    failed = {**measured.summary, "requests": {"ok": 50, "errors": {"timeout": 10}}}
    runs = [
        at(measured, "fine", closed(1), 50, 10),
        at(measured, "noisy", closed(2), 90, 9, validity=[spoilt]),
        at(measured, "early", closed(8), 300, 5, status="partial"),
    ]
    missed = at(measured, "missed", closed(4), 200, 8)
    runs.append(replace(missed, config={**missed.config, "slo": strict}))
    some = at(measured, "errors", closed(16), 40, 50)
    runs.append(replace(some, summary={**failed, "output_tokens_per_s": 40.0, "tpot_ms": {"p50": 50.0}}))
    (figure,) = latency_throughput(questions(runs))
    table = figure.data.set_index("runs")
    assert list(table.index[table["on_frontier"]]) == ["fine"]
    assert list(table.index[table["doubtful"]]) == ["noisy", "early"]
    assert table["missed_slo"].to_dict()["missed"] is True and table["missed_slo"].to_dict()["fine"] is None
    assert table["errors"].to_dict()["errors"] == 10
    assert "Hollow" in figure.reading and "Crossed" in figure.reading


def test_latencies_and_goodput_against_the_rate_with_the_limits(measured: Run):
    window = Window.from_record(measured.window)
    limits = NO_LIMITS | {"ttft_ms": 90.0, "tpot_ms": 20.0, "ttft_p95_ms": 200.0}
    slo = SloOptions(**limits)
    runs = []
    for rate in (1.0, 2.0):
        run = at(measured, f"r{rate:g}", {"name": "poisson", "rate": rate})
        summary = {**measured.summary, **goodput(run.requests, window, slo), "slo_percentiles": []}
        runs.append(replace(run, summary=summary, config={**run.config, "slo": limits}))
    (figure,) = against_load(questions(runs), []).values()
    assert figure.name == "against-load-chat-rate" and figure.data["load"].tolist() == [1, 2]

    rows = measured.requests[measured.requests["phase"] == "measured"]
    ttft = (rows["first_ns"] - rows["scheduled_ns"]).to_numpy(dtype=float) / 1e6
    pace = (
        (rows["last_ns"] - rows["first_ns"]).to_numpy(dtype=float)
        / 1e6
        / (rows["output_tokens"].to_numpy(float) - 1)
    )
    ended = (rows["end_ns"] >= window.start_ns) & (rows["end_ns"] <= window.end_ns)
    good = np.sum((ttft <= 90) & (pace <= 20) & ended.to_numpy(dtype=bool))
    assert 0 < good < len(rows)
    assert figure.data["goodput_per_s"].tolist() == pytest.approx([good / window.seconds] * 2)
    assert figure.data["ttft_ms.p95"].tolist() == pytest.approx([np.percentile(ttft, 95)] * 2)
    assert "SLO of a request" in figure.svg and "goodput, req/s" in figure.svg


def test_a_percentile_that_falls_on_failed_requests_is_not_drawn(measured: Run):
    held = {
        "key": "ttft_p95_ms",
        "limit_ms": 500.0,
        "value_ms": None,
        "samples": 9,
        "enough": False,
        "met": False,
    }
    runs = []
    for rate, percentiles in ((1.0, []), (4.0, [held])):
        run = at(measured, f"r{rate:g}", {"name": "poisson", "rate": rate})
        runs.append(replace(run, summary={**run.summary, "slo_percentiles": percentiles}))
    (figure,) = against_load(questions(runs), []).values()
    assert figure.data["ttft_ms.p95"].isna().tolist() == [False, True]


def test_rates_and_concurrencies_are_figures_of_their_own_and_changing_loads_none(measured: Run):
    runs = [at(measured, f"c{count}", closed(count)) for count in (1, 2, 64)]
    runs += [at(measured, f"r{rate}", {"name": "constant", "rate": rate}) for rate in (1, 2)]
    runs.append(at(measured, "steps", {"name": "steps", "rate": None, "stages": ["1x30"]}))
    (question,) = questions(runs)
    assert {unit: len(question.of(unit)[0].points) for unit in (AT_ONCE, RATE)} == {AT_ONCE: 3, RATE: 2}
    assert [line.label for line in question.lines] == ["openvino · closed", "openvino · constant"]
    assert sorted(against_load([question], [])) == ["against-load-chat-concurrency", "against-load-chat-rate"]


def test_one_load_alone_is_not_drawn_against_it(measured: Run, tmp_path: Path):
    assert against_load(questions([at(measured, "a", closed(4))]), []) == {}
