import errno
import json
import re
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd
import pytest

from harness.core.errors import RecordError
from harness.records.frames import empty, typed
from harness.records.ids import new_run_id
from harness.records.reader import find_runs, latest_runs, list_runs, read_run
from harness.records.schema import EVENT_COLUMNS, REQUEST_COLUMNS, RUN_KEYS, SCHEMA, TELEMETRY_COLUMNS
from harness.records.writer import RunWriter
from tests.support.synthetic_runs import Schedule, tables, write_failed_run, write_run


def test_ids_start_with_a_letter_sort_by_time_and_are_safe_in_a_path():
    early = new_run_id("openvino", "chat", datetime(2026, 11, 30, 4, 25, 1, tzinfo=UTC))
    late = new_run_id("a/../b c", "RAG", datetime(2026, 11, 30, 4, 25, 2, tzinfo=UTC))
    assert re.fullmatch(r"r20261130-042501-openvino-chat-[0-9a-f]{4}", early)
    assert re.fullmatch(r"[a-z][a-z0-9.-]+", late)
    assert early < late


def test_what_was_written_is_read_back(tmp_path: Path):
    requests, events, telemetry = tables(Schedule(jitter=0.2, errors={3: "truncated"}))
    with RunWriter(tmp_path, "r1") as writer:
        writer.engine_log.write_text("ready")
        (writer.scratch / "buffer").write_bytes(b"spilled")
        folder = writer.finish(
            "complete",
            {"summary": {"ttft_ms": {"p99": None}}, "started_at": "2026"},
            requests,
            events,
            telemetry,
        )
    run = read_run("r1", tmp_path)
    pd.testing.assert_frame_equal(run.requests, requests)
    pd.testing.assert_frame_equal(run.events, events)
    pd.testing.assert_frame_equal(run.telemetry, telemetry)
    assert run.summary == {"ttft_ms": {"p99": None}}
    assert sorted(path.name for path in folder.iterdir()) == [
        "engine.log",
        "events.parquet",
        "requests.parquet",
        "run.json",
        "telemetry.parquet",
    ]


def test_a_full_disk_is_given_the_scratch_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    requests, events, telemetry = tables(Schedule())
    to_parquet = pd.DataFrame.to_parquet
    with RunWriter(tmp_path, "r1") as writer:
        (writer.scratch / "journal").write_bytes(b"spilled")

        def full(table: pd.DataFrame, path: Path, **how: object) -> None:
            to_parquet(table, path, **how)
            if writer.scratch.exists():
                raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(pd.DataFrame, "to_parquet", full)
        writer.finish("partial", {"started_at": "2026"}, requests, events, telemetry)
    run = read_run("r1", tmp_path)
    assert len(run.requests) == len(requests)
    assert len(run.telemetry) == len(telemetry)


def test_the_tables_have_the_types_of_the_schema(tmp_path: Path):
    run = read_run(write_run(tmp_path, "r1"))
    for table, columns in (
        (run.requests, REQUEST_COLUMNS),
        (run.events, EVENT_COLUMNS),
        (run.telemetry, TELEMETRY_COLUMNS),
    ):
        assert {name: str(table[name].dtype) for name in columns} == columns


def test_run_json_has_every_key_and_no_nan(tmp_path: Path):
    folder = write_run(tmp_path, "r1", reason="x", sweep="s1", client={"cpu_share": 0.1})
    text = (folder / "run.json").read_text()
    record = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert set(record) == {"schema", *RUN_KEYS}


def test_a_failed_run_has_its_reason_and_no_tables(tmp_path: Path):
    folder = write_failed_run(tmp_path, "r1", "The engine died.")
    run = read_run("r1", tmp_path)
    assert [path.name for path in folder.iterdir()] == ["run.json"]
    assert (run.status, run.reason) == ("failed", "The engine died.")
    assert list(run.requests.columns) == list(REQUEST_COLUMNS)
    assert run.requests.empty


def test_empty_tables_are_not_written(tmp_path: Path):
    folder = RunWriter(tmp_path, "r1").finish("partial", {}, requests=empty(REQUEST_COLUMNS))
    assert not (folder / "requests.parquet").exists()


def test_nothing_is_listed_before_it_is_whole_and_nothing_left_after_an_exception(tmp_path: Path):
    with pytest.raises(RuntimeError), RunWriter(tmp_path, "r1") as writer:
        writer.engine_log.write_text("started")
        assert list_runs(tmp_path) == []
        raise RuntimeError
    assert list((tmp_path / "runs").iterdir()) == []


def test_a_run_is_never_overwritten(tmp_path: Path):
    write_run(tmp_path, "r1")
    with pytest.raises(RecordError, match="never overwritten"):
        RunWriter(tmp_path, "r1")


def test_a_place_that_cannot_be_written_names_the_cure(tmp_path: Path):
    (tmp_path / "results").write_text("a file, not a folder")
    with pytest.raises(RecordError, match="results_dir=FOLDER"):
        RunWriter(tmp_path / "results", "r1")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's /dev/full")
def test_a_full_disk_names_the_cure_and_leaves_no_run(tmp_path: Path):
    writer = RunWriter(tmp_path, "r1")
    (writer.folder / "run.json").symlink_to("/dev/full")  # every write to it fails as on a full disk
    with pytest.raises(RecordError, match=r"No space left on device.*Free some space"), writer:
        writer.finish("complete", {})
    assert list_runs(tmp_path) == []
    assert not writer.folder.exists()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"{", "damaged"),
        (b"[]", "damaged"),
        (b"{}", "damaged"),
        (json.dumps({"schema": 1, "status": "odd"}).encode(), "unknown status 'odd'"),
        (json.dumps({"schema": 1, "status": "complete"}).encode(), "damaged"),
        (
            json.dumps({"schema": 1, "status": "complete", "id": "../../x", "started_at": ""}).encode(),
            "unsafe id",
        ),
        (json.dumps({"schema": SCHEMA + 1, "status": "complete"}).encode(), "Update inference-harness"),
    ],
)
def test_a_damaged_or_newer_record_is_one_clear_error(tmp_path: Path, content: bytes, words: str):
    folder = write_run(tmp_path, "r1")
    (folder / "run.json").write_bytes(content)
    with pytest.raises(RecordError, match=words):
        read_run("r1", tmp_path)


def test_a_damaged_table_is_one_clear_error(tmp_path: Path):
    folder = write_run(tmp_path, "r1")
    (folder / "events.parquet").write_bytes(b"PAR1 and then nothing")
    with pytest.raises(RecordError, match=r"events.parquet is damaged .*Restore it"):
        _ = read_run("r1", tmp_path).events


def test_an_unknown_run_says_what_is_there(tmp_path: Path):
    with pytest.raises(RecordError, match="holds none"):
        read_run("r9", tmp_path)
    write_run(tmp_path, "r1")
    with pytest.raises(RecordError, match="the latest: r1"):
        read_run("r9", tmp_path)


def test_runs_are_found_by_id_pattern_and_folder_each_once(tmp_path: Path):
    for name in ("r1-chat", "r2-rag", "r3-chat"):
        write_run(tmp_path, name)
    found = find_runs(["*-chat", "r2-rag", str(tmp_path / "runs" / "r1-chat")], tmp_path)
    assert [run.id for run in found] == ["r1-chat", "r3-chat", "r2-rag"]


def test_the_latest_sweep_or_the_latest_run_alone(tmp_path: Path):
    with pytest.raises(RecordError, match="python -m harness"):
        latest_runs(tmp_path)
    write_run(tmp_path, "r1", sweep="a")
    write_run(tmp_path, "r2", sweep="b")
    write_run(tmp_path, "r3", sweep="b")
    assert [run.id for run in latest_runs(tmp_path)] == ["r2", "r3"]
    write_run(tmp_path, "r4")
    assert [run.id for run in latest_runs(tmp_path)] == ["r4"]


def test_further_columns_are_kept_and_lacking_ones_are_missing():
    frame = typed([{"ns": 1, "kv_used_bytes": 5.0}], TELEMETRY_COLUMNS)
    assert frame["kv_used_bytes"].tolist() == [5.0]
    assert frame["pss_bytes"].isna().all()
    with pytest.raises((ValueError, TypeError)):
        typed([{"pss_bytes": 5}], TELEMETRY_COLUMNS)  # ns may not be missing


def test_a_table_that_fits_comes_back_as_it_is_and_is_the_callers_own():
    frame = typed([{"name": "a", "count": 1, "more": 2.0}], {"name": "string", "count": "Int64"})
    again = typed(frame, {"name": "string", "count": "Int64"})
    pd.testing.assert_frame_equal(again, frame)
    again["count"] = 7
    again.loc[0, "name"] = "b"
    assert frame["count"].tolist() == [1] and frame["name"].tolist() == ["a"]
    assert list(typed(frame, {"count": "int64", "name": "string"}).columns) == ["count", "name", "more"]
