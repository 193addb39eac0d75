"""Selecting, listing, exporting and deleting synthetic runs."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.core.errors import RecordError, UsageError
from harness.records.reader import Run
from harness.records.selection import Selection, select, selection_of
from harness.runs.__main__ import main
from tests.support.synthetic_runs import write_failed_run, write_run

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    write_run(tmp_path, "a", started_at="2026-11-20T10:00:00+00:00")
    write_run(tmp_path, "b", backend="vllm", workload="rag", started_at="2026-11-29T10:00:00+00:00")
    write_failed_run(tmp_path, "c", "no memory\nmore", started_at="2026-11-30T11:30:00+00:00")
    return tmp_path


def _ids(results: Path, **filters: str) -> list[str]:
    given_keys = {f"filter.{key}" if key != "runs" else key: value for key, value in filters.items()}
    return [run.id for run in select(selection_of(given_keys, NOW), results)]


def test_filters_narrow_together(results: Path):
    assert _ids(results) == ["a", "b", "c"]
    assert _ids(results, backend="vllm") == ["b", "c"]
    assert _ids(results, backend="v*", workload="rag") == ["b"]
    assert _ids(results, status="failed") == ["c"]
    assert _ids(results, since="7d") == ["b", "c"]
    assert _ids(results, since="45m") == ["c"]
    assert _ids(results, since="2026-11-30T00:00+00:00") == ["c"]
    assert _ids(results, runs="[c,a]") == ["c", "a"]
    assert _ids(results, runs="[a,b]", since="2w", backend="openvino") == ["a"]


def test_nothing_that_matches_says_what_there_is(results: Path):
    with pytest.raises(RecordError, match=r"holds 3 runs \(backends: openvino, vllm; workloads: chat, rag\)"):
        _ids(results, backend="nothing")
    with pytest.raises(RecordError, match="no run 'z'"):
        _ids(results, runs="z")


@pytest.mark.parametrize(
    ("key", "value"), [("since", "yesterday"), ("since", "7"), ("since", "999999999w"), ("status", "good")]
)
def test_filters_that_mean_nothing_are_refused(results: Path, key: str, value: str):
    with pytest.raises(UsageError, match=f"filter.{key}={value}"):
        _ids(results, **{key: value})


@given(
    st.lists(st.tuples(st.sampled_from("xyz"), st.sampled_from("pq"), st.integers(0, 20)), max_size=12),
    st.sampled_from(["", "x", "[yz]", "*"]),
    st.sampled_from(["", "p", "?"]),
    st.integers(0, 20),
)
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_what_is_left_is_what_fits_every_filter(
    made: list[tuple[str, str, int]], backend: str, workload: str, days: int
):
    runs = [
        Run(
            folder=Path(),
            id=str(place),
            status="complete",
            started_at=(NOW - timedelta(days=age)).isoformat(),
            config={"backend": {"name": b}, "workload": {"name": w}},
        )
        for place, (b, w, age) in enumerate(made)
    ]
    selection = Selection(backend=backend, workload=workload, since=NOW - timedelta(days=days))
    members = {"": "xyz", "x": "x", "[yz]": "yz", "*": "xyz"}
    expected = [
        str(place)
        for place, (b, w, age) in enumerate(made)
        if b in members[backend] and (workload != "p" or w == "p") and age <= days
    ]
    assert [run.id for run in runs if selection.holds(run)] == expected


def test_the_list_shows_damaged_records_too(results: Path, capsys: pytest.CaptureFixture[str]):
    (results / "runs" / "b" / "run.json").write_text("{")
    assert main([f"results_dir={results}"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3 and "openvino · chat" in lines[0] and "unreadable" in lines[1]
    assert lines[2].endswith("vllm · chat  no memory")
    assert main([f"results_dir={results / 'nothing'}"]) == 1
    assert "There is no run" in capsys.readouterr().err


def test_exports_hold_the_same_figures(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    where = f"results_dir={results}"
    for form in ("csv", "parquet", "json"):
        assert main(["action=export", where, f"out={tmp_path / f'runs.{form}'}"]) == 0
    frames = [
        pd.read_csv(tmp_path / "runs.csv"),
        pd.read_parquet(tmp_path / "runs.parquet"),
        pd.DataFrame(json.loads((tmp_path / "runs.json").read_text())),
    ]
    for frame in frames:
        assert list(frame["id"]) == ["a", "b", "c"]
        assert frame["ttft_ms.p50"][0] == pytest.approx(80)
        assert pd.isna(frame["output_tokens_per_s"][2])
        assert list(frame["config.backend.name"]) == ["openvino", "vllm", "vllm"]
    capsys.readouterr()
    assert main(["action=export", where, "runs=a"]) == 0
    assert capsys.readouterr().out.splitlines()[0].startswith("id,status,started_at")
    for arguments, words in (
        (["out=runs.pdf"], "end it with .csv"),
        (["format=parquet"], "name a file"),
        ([f"out={tmp_path / 'no' / 'runs.csv'}"], "cannot be written"),
    ):
        assert main(["action=export", where, *arguments]) in (1, 2)
        assert words in capsys.readouterr().err


def test_showing_needs_a_name(results: Path, capsys: pytest.CaptureFixture[str]):
    assert main([f"results_dir={results}", "action=show", "runs=c"]) == 0
    said = capsys.readouterr().out
    assert "config.backend.name: vllm" in said and "reason: no memory" in said
    assert main([f"results_dir={results}", "action=show"]) == 2


def test_deleting_says_first_what_it_would_delete(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    where = f"results_dir={results}"
    assert main(["action=delete", where]) == 2
    assert main(["action=delete", where, "filter.status=failed"]) == 0
    assert "Nothing was deleted" in capsys.readouterr().out
    assert (results / "runs" / "c").is_dir()
    other = tmp_path / "other"
    elsewhere = write_run(other, "d")
    assert main(["action=delete", where, f"runs=[c,{elsewhere}]", "yes=true"]) == 2
    assert (results / "runs" / "c").is_dir() and elsewhere.is_dir()
    assert main(["action=delete", where, "filter.status=failed", "yes=true"]) == 0
    assert sorted(path.name for path in (results / "runs").iterdir()) == ["a", "b"]
