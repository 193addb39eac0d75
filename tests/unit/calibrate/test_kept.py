"""A calibration is found again on the same machine with the same client, and nowhere else."""

from pathlib import Path

import pytest

from harness.calibrate import kept
from harness.calibrate.kept import Capacity, circumstances, keep, kept_capacity
from harness.core.errors import HarnessError

CAPACITY = Capacity(80_000.0, "client", 2000, "server")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("INFERENCE_HARNESS_CACHE", str(tmp_path))
    return tmp_path


def test_kept_and_found_again():
    assert kept_capacity() is None
    path = keep(CAPACITY, [], "2026-11-30T00:00:00+00:00")
    assert path.is_file() and kept_capacity() == CAPACITY
    better = Capacity(90_000.0, "client", 2000, "server")
    assert keep(better, [], "later") == path and kept_capacity() == better


@pytest.mark.parametrize("changed", ["cpu", "cores", "kernel", "client", "uvloop"])
def test_another_machine_or_client_has_its_own(changed: str, monkeypatch: pytest.MonkeyPatch):
    keep(CAPACITY, [], "now")
    other = circumstances() | {changed: "other"}
    monkeypatch.setattr(kept, "circumstances", lambda: other)
    assert kept_capacity() is None


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"schema": 99, "capacity": {}}'])
def test_a_damaged_file_counts_as_none(text: str):
    keep(CAPACITY, [], "now").write_text(text)
    assert kept_capacity() is None


def test_a_cache_that_cannot_be_written_is_told(cache: Path, monkeypatch: pytest.MonkeyPatch):
    (cache / "file").write_text("")
    monkeypatch.setenv("INFERENCE_HARNESS_CACHE", str(cache / "file"))
    with pytest.raises(HarnessError, match="INFERENCE_HARNESS_CACHE"):
        keep(CAPACITY, [], "now")


def test_the_larger_share_counts():
    assert CAPACITY.used(40_000, 20) == 0.5
    assert CAPACITY.used(800, 3000) == 1.5
    assert Capacity(0.0, "client", 0, "client").used(1, 1) == float("inf")
