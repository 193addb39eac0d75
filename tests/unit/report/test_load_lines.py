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
from harness.records.searches import RecordedProbe, RecordedSearch
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
    assert len({one.name for one in asked}) == 2 and "output_tokens=999, prompt_tokens=5" in asked[1].title
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
    met = held | {"value_ms": 80.0, "met": True}
    for rate, percentiles in ((1.0, [met]), (4.0, [held])):
        run = at(measured, f"r{rate:g}", {"name": "poisson", "rate": rate})
        runs.append(replace(run, summary={**run.summary, "slo_percentiles": percentiles}))
    (figure,) = against_load(questions(runs), []).values()
    assert figure.data["ttft_ms.p95"].isna().tolist() == [False, True]
    unlimited = replace(runs[0], summary={**runs[0].summary, "slo_percentiles": []})
    (figure,) = against_load(questions([unlimited, runs[1]]), []).values()  # then of both what was answered
    assert figure.data["ttft_ms.p95"].tolist() == [run.summary["ttft_ms"]["p95"] for run in runs]


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


def on(run: Run, **machine: Any) -> Run:
    told = {**run.fingerprint, "machine": {**run.fingerprint["machine"], **machine}}
    return replace(run, fingerprint=told)


def test_machines_are_lines_of_their_own_and_a_price_given_later_is_none(measured: Run):
    here = [at(measured, f"a{count}", closed(count), 10 * count) for count in (1, 2)]
    prices = [
        {**run.config, "hardware": {"price_per_hour": price}}
        for run, price in zip(here, (None, 2.0), strict=True)
    ]
    (question,) = questions([replace(run, config=config) for run, config in zip(here, prices, strict=True)])
    assert [line.ids for line in question.lines] == [["a1", "a2"]]
    there = [on(replace(run, id=f"b{run.id}"), cores=64, gpus=["H200"]) for run in here]
    (question,) = questions([*here, *there])
    assert {line.label: line.ids for line in question.lines} == {
        "openvino · 2 cores, no GPU": ["a1", "a2"],
        "openvino · 64 cores, H200": ["ba1", "ba2"],
    }
    assert [point.figure("output_tokens_per_s") for point in question.lines[0].points] == [10, 20]


def test_questions_of_one_workload_are_named_by_what_differs(measured: Run):
    def asked(name: str, **options: Any) -> Run:
        run = at(measured, name, closed(1))
        return replace(run, config={**run.config, "workload": {"name": "chat", **options}})

    runs = [asked(f"t{turns}", turns=turns, save=f"{turns}.jsonl", requests=9 + turns) for turns in (0, 1, 2)]
    assert [one.title for one in questions(runs)] == ["chat (turns=0)", "chat (turns=1)", "chat (turns=2)"]
    assert len(questions([asked("a", save="x"), asked("b", requests=7)])) == 1
    other = replace(runs[0], id="other", fingerprint={**runs[0].fingerprint, "model_sha256": "another"})
    titles = [one.title for one in questions([runs[0], other])]
    assert len(set(titles)) == 2


def test_hollow_is_by_the_share_that_the_search_asked_for(measured: Run):
    """Half of the requests keep the limit: enough where a search asked for 40 %, too few by the usual 99 %."""
    rows = measured.requests[measured.requests["phase"] == "measured"]
    ttft = (rows["first_ns"] - rows["scheduled_ns"]).to_numpy(dtype=float) / 1e6
    limits = NO_LIMITS | {"ttft_ms": float(np.median(ttft))}
    run = at(measured, "p1", {"name": "poisson", "rate": 1.0})
    run = replace(run, config={**run.config, "slo": limits})

    def missed(needed: float | None) -> bool | None:
        probe = RecordedProbe(1.0, "p1", "complete", True, None, "", (), 0.5, None)
        search = RecordedSearch("s", "s", "search", RATE, needed, (probe,), None, "")
        return questions([run], [search])[0].lines[0].points[0].missed

    assert missed(0.4) is False and missed(0.9) is True and missed(None) is True
    assert questions([run])[0].lines[0].points[0].missed is True


def test_one_run_without_an_slo_takes_no_limit_from_the_figure(measured: Run):
    def limited(name: str, rate: float, ttft: float | None) -> Run:
        run = at(measured, name, {"name": "poisson", "rate": rate})
        return replace(run, config={**run.config, "slo": NO_LIMITS | {"ttft_p95_ms": ttft}})

    (question,) = questions([limited("a", 1, 200.0), limited("b", 2, 200.0), limited("c", 3, None)])
    assert question.slo is not None and question.slo.ttft_p95_ms == 200
    assert [point.missed is None for point in question.lines[0].points] == [False, False, True]
    (question,) = questions([limited("a", 1, 200.0), limited("b", 2, 300.0)])
    assert question.slo is None
