import multiprocessing
import os
import signal
import time
from pathlib import Path

import pytest

from harness.core.cache import cached_folder, sha256_of_file
from harness.core.errors import HarnessError


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("INFERENCE_HARNESS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_an_entry_is_built_once():
    calls = []

    def build(folder: Path) -> None:
        calls.append(folder)
        (folder / "data").write_text("made")

    first = cached_folder("kind/key", build)
    second = cached_folder("kind/key", build)
    assert first == second
    assert (second / "data").read_text() == "made"
    assert len(calls) == 1


def test_a_builder_that_fails_leaves_nothing(own_cache: Path):
    def build(folder: Path) -> None:
        (folder / "half").write_text("half")
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError):
        cached_folder("key", build)
    assert not (own_cache / "key").exists()
    assert not (own_cache / "key.building").exists()


def _build_slowly(counter: str) -> None:
    def build(folder: Path) -> None:
        with Path(counter).open("a") as file:
            file.write("x")
        time.sleep(0.2)
        (folder / "data").write_text("whole")

    assert (cached_folder("shared", build) / "data").read_text() == "whole"


def test_two_processes_build_it_once(tmp_path: Path):
    context = multiprocessing.get_context("fork")
    counter = tmp_path / "calls"
    workers = [context.Process(target=_build_slowly, args=(str(counter),)) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    assert counter.read_text() == "x"


def _build_and_hang(ready: str) -> None:
    def build(folder: Path) -> None:
        (folder / "half").write_text("half")
        Path(ready).write_text("")
        signal.pause()

    cached_folder("killed", build)


def test_a_killed_builder_is_taken_over(tmp_path: Path):
    context = multiprocessing.get_context("fork")
    ready = tmp_path / "ready"
    worker = context.Process(target=_build_and_hang, args=(str(ready),))
    worker.start()
    while not ready.exists():
        time.sleep(0.01)
    os.kill(worker.pid, signal.SIGKILL)
    worker.join()
    folder = cached_folder("killed", lambda folder: (folder / "data").write_text("whole"))
    assert sorted(path.name for path in folder.iterdir()) == ["data"]


def test_an_unwritable_cache_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("INFERENCE_HARNESS_CACHE", str(tmp_path / "file"))
    with pytest.raises(HarnessError, match="INFERENCE_HARNESS_CACHE"):
        cached_folder("key", lambda folder: None)


def test_hash_of_a_file_follows_its_content(tmp_path: Path):
    path = tmp_path / "file"
    path.write_bytes(b"abc")
    # FIPS 180-2, appendix B.1
    assert sha256_of_file(path) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert sha256_of_file(path) == sha256_of_file(path)
    path.write_bytes(b"abcd")
    assert sha256_of_file(path) != "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
