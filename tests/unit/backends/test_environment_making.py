"""An environment is made whole or not at all, by one process at a time, and is examined by its own interpreter."""

import multiprocessing
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from backends.environment import environments_folder
from backends.environment_check import examine
from backends.environment_making import being_made, discard, ensure, mend
from backends.gpu import nvidia_gpu_here
from harness.core.cache import locked
from harness.core.errors import EngineError, UsageError
from tests.support.tiny_environment import TINY, lay_out, write_wheel


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One environment that is made once; what breaks it mends it."""
    folder = tmp_path_factory.mktemp("tiny")
    with pytest.MonkeyPatch.context() as monkeypatch:
        lay_out(folder, monkeypatch)
        yield folder


@pytest.fixture(scope="module")
def said(place: Path) -> list[str]:
    lines: list[str] = []
    assert ensure(TINY, lines.append) == TINY.python()
    return lines


def test_it_holds_the_lock_and_the_overlay_and_notes_its_versions(said: list[str]) -> None:
    asked = "import tiny_engine, tiny_stub; print(tiny_engine.answer, tiny_stub.here)"
    done = subprocess.run([TINY.python(), "-I", "-c", asked], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["42", "True"]
    assert orjson.loads(TINY.complete.read_bytes())["versions"] == {"tiny-engine": "1.2"}
    assert "1 of 1: tiny_engine-1.2" in said


def test_one_that_is_there_is_taken_as_it_is(said: list[str]) -> None:
    again: list[str] = []
    before = TINY.complete.stat().st_mtime_ns
    assert ensure(TINY, again.append) == TINY.python()
    assert again == []
    assert TINY.complete.stat().st_mtime_ns == before


def test_a_changed_lock_or_overlay_is_another_environment_and_a_comment_is_not(
    said: list[str], place: Path
) -> None:
    lock, stub = TINY.lock, place / "environments" / "overlays" / "tiny" / "tiny_stub.py"
    key, words, code = TINY.key(), lock.read_text(), stub.read_text()
    lock.write_text(f"# Other words.\n\n{words}")
    assert TINY.key() == key
    lock.write_text(words.replace("1.2", "1.3"))
    assert TINY.key() != key
    assert TINY.leftovers() == [environments_folder() / f"tiny-cpu-{key}"]
    assert not TINY.installed()
    lock.write_text(words)
    stub.write_text("here = False\n")
    assert TINY.key() != key
    stub.write_text(code)
    assert TINY.installed()


def test_what_does_not_import_is_named_and_made_again(said: list[str]) -> None:
    (module,) = TINY.folder().glob("lib/python*/site-packages/tiny_engine.py")
    module.write_text("import no_such_module\n")
    (fault,) = examine(TINY.python(), TINY).faults
    assert "tiny_engine does not import" in fault
    assert "no_such_module" in fault
    module.write_text("import os\n\nos.abort()  # as a wheel for another processor would\n")
    (fault,) = examine(TINY.python(), TINY).faults
    assert "importing tiny_engine ended its interpreter" in fault
    lines: list[str] = []
    mend(TINY, lines.append)
    assert "an empty environment" in lines
    assert examine(TINY.python(), TINY).faults == ()


def test_a_package_without_a_version_is_a_fault(said: list[str]) -> None:
    faults = examine(TINY.python(), replace(TINY, packages=("tiny-engine", "tiny-model"))).faults
    assert faults == ("the package tiny-model is missing",)


def test_an_interpreter_that_is_gone_is_not_installed(said: list[str], tmp_path: Path) -> None:
    python = TINY.python()
    kept = python.readlink()
    python.unlink()
    python.symlink_to(tmp_path / "no-python")
    try:
        assert not TINY.installed()
        assert "does not run" in examine(python, TINY).faults[0]
    finally:
        python.unlink()
        python.symlink_to(kept)
    assert TINY.installed()


def _make_and_count(counter: str) -> None:
    def say(line: str) -> None:
        with Path(counter).open("a") as file:
            file.write(f"{line}\n")

    ensure(TINY, say)
    raise SystemExit(not TINY.installed())


def test_two_at_once_make_it_once_and_what_was_interrupted_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lay_out(tmp_path, monkeypatch)
    stale = TINY.folder() / "bin"  # what a killed installation leaves: a folder without the note
    stale.mkdir(parents=True)
    (stale / "half").write_text("")
    assert not TINY.installed()
    context = multiprocessing.get_context("fork")
    counter = tmp_path / "said"
    with locked(TINY.folder()):  # both are there before either begins
        assert being_made(TINY)
        workers = [context.Process(target=_make_and_count, args=(str(counter),)) for _ in range(2)]
        for worker in workers:
            worker.start()
        while not counter.exists() or counter.read_text().count("waiting for another process") < 2:
            assert all(worker.is_alive() for worker in workers)
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0]
    assert counter.read_text().splitlines().count("an empty environment") == 1
    assert not (stale / "half").exists()
    assert not being_made(TINY)
    discard(TINY)
    assert not TINY.folder().exists()


def test_one_that_cannot_be_made_leaves_nothing_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lay_out(tmp_path, monkeypatch)
    write_wheel(tmp_path / "wheels", "tiny-engine", "1.2", "import no_such_module\n")
    with pytest.raises(
        EngineError, match="does not work, and was removed again: tiny_engine does not import"
    ):
        ensure(TINY)
    assert not TINY.folder().exists()
    shutil.rmtree(tmp_path / "wheels")
    (tmp_path / "wheels").mkdir()
    with pytest.raises(EngineError, match=r"pip could not install tiny-cpu: .*tiny-engine==1\.2.*registry"):
        ensure(TINY)
    assert not TINY.folder().exists()
    assert "tiny-engine" in (environments_folder() / "tiny-cpu.log").read_text()


def test_what_is_impossible_is_said_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lay_out(tmp_path, monkeypatch)
    for recipe, kind, words in (
        (replace(TINY, name="other"), EngineError, "other has no lock yet.*action=doctor"),
        (replace(TINY, minimum_python=(9, 1)), UsageError, r"needs Python 9\.1 or newer.*python="),
        (replace(TINY, megabytes=10**12), UsageError, r"MB of disk space.*INFERENCE_HARNESS_CACHE"),
    ):
        with pytest.raises(kind, match=words):
            ensure(recipe)
    with pytest.raises(UsageError, match="python=/no/python is no Python"):
        ensure(TINY, python="/no/python")
    if not nvidia_gpu_here():
        with pytest.raises(UsageError, match="no use without an NVIDIA GPU"):
            ensure(replace(TINY, gpu=True))
    assert not environments_folder().exists()
