"""Timelines: every request of a run as a line."""

from pathlib import Path

import pandas as pd
import pytest

from harness.records.reader import Run, find_runs
from harness.report.timeline import MOST_REQUESTS, Sheet, timeline
from tests.support.synthetic_runs import Schedule, write_failed_run, write_run

SCHEDULES = {
    "many": Schedule(requests=300, tokens=4, jitter=0.3),
    "few": Schedule(requests=5, errors={1: "timeout"}),
    "slow": Schedule(requests=40, ttft_ms=9000),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    folder = tmp_path_factory.mktemp("results")
    for name, schedule in SCHEDULES.items():
        write_run(folder, name, schedule)
    return find_runs(list(SCHEDULES), folder)


def test_what_was_drawn_before_leaves_no_trace(runs: list[Run]):
    alone = [timeline(run, run.id, run.id, Sheet()) for run in runs]
    sheet = Sheet()
    for order in (runs, runs[::-1]):
        shared = {run.id: timeline(run, run.id, run.id, sheet) for run in order}
        for one in alone:
            again = shared[one.name] if one is not None else None
            assert one is not None and again is not None
            assert one.svg == again.svg and one.files([]) == again.files([])


def test_it_holds_every_request_from_when_it_was_due(runs: list[Run]):
    found = timeline(runs[1], "few", "few", Sheet())
    assert found is not None and not found.has_png
    requests = runs[1].requests[runs[1].requests["phase"] == "measured"]
    assert found.data["index"].tolist() == requests["index"].tolist()
    assert found.data["ok"].tolist() == [True, False, True, True, True]
    waited = found.data["first_s"] - found.data["scheduled_s"]
    assert waited.tolist() == pytest.approx([0.08] * 5)


def test_of_many_requests_a_sample_is_drawn_and_said(tmp_path: Path):
    write_run(tmp_path, "r1", Schedule(requests=MOST_REQUESTS + 1, tokens=2))
    (run,) = find_runs(["r1"], tmp_path)
    found = timeline(run, "r1", "r1", Sheet())
    assert found is not None and len(found.data) == MOST_REQUESTS
    assert found.reading == f"{MOST_REQUESTS} of {MOST_REQUESTS + 1} requests are drawn."
    assert pd.Index(found.data["index"]).is_unique


def test_there_is_none_where_nothing_was_measured(tmp_path: Path):
    write_failed_run(tmp_path, "r1", "It did not start.")
    (run,) = find_runs(["r1"], tmp_path)
    assert timeline(run, "r1", "r1", Sheet()) is None
