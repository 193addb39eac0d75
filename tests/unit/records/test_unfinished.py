from pathlib import Path

import pytest

from harness.client.journal import Journal
from harness.core.errors import RecordError
from harness.records.reader import list_runs
from harness.records.unfinished import living_runs, notice, unfinished_runs
from harness.records.writer import RunWriter


def test_a_run_that_is_being_written_is_not_taken_for_a_dead_one(tmp_path: Path):
    with RunWriter(tmp_path, "r1"):
        assert living_runs(tmp_path) == ["r1"] and unfinished_runs(tmp_path) == []
        assert notice(tmp_path) is None
        with pytest.raises(RecordError, match="still lives"):
            RunWriter.take_over(tmp_path, "r1")
    assert living_runs(tmp_path) == unfinished_runs(tmp_path) == []


def test_a_writer_that_went_without_a_word_can_be_followed(tmp_path: Path):
    RunWriter(tmp_path, "r1").close()  # the system closes the files of a process that is killed
    assert unfinished_runs(tmp_path) == ["r1"] and list_runs(tmp_path) == []
    assert "An earlier run was killed" in str(notice(tmp_path))
    follower = RunWriter.take_over(tmp_path, "r1")
    assert living_runs(tmp_path) == ["r1"]
    follower.finish("failed", {})
    assert list_runs(tmp_path) == ["r1"] and notice(tmp_path) is None


def test_a_client_that_still_writes_keeps_the_run_alive(tmp_path: Path):
    writer = RunWriter(tmp_path, "r1")
    spool = writer.scratch / "measured"
    spool.mkdir()
    journal = Journal(spool / "measured.journal")
    writer.close()
    assert living_runs(tmp_path) == ["r1"]
    journal.close()
    assert unfinished_runs(tmp_path) == ["r1"]


def test_a_folder_without_a_lock_is_left_alone(tmp_path: Path):
    (tmp_path / "runs" / ".r1.writing").mkdir(parents=True)
    assert living_runs(tmp_path) == ["r1"] and notice(tmp_path) is None
