"""Compiling on first use, and what takes its place where that fails."""

import ctypes
import shutil
from pathlib import Path

import pytest

from harness.client import chunk_reader
from harness.core.compiling import compiled_c

needs_compiler = pytest.mark.skipif(not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="no compiler")


@pytest.fixture(autouse=True)
def _empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFERENCE_HARNESS_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    file = tmp_path / "seven.c"
    file.write_text("int seven(void) { return 7; }\n")
    return file


@needs_compiler
def test_each_version_is_compiled_once(source: Path) -> None:
    library = compiled_c(source, "Nothing", ("-shared", "-fPIC"))
    assert library is not None and ctypes.CDLL(str(library)).seven() == 7
    before = library.stat().st_mtime_ns
    assert compiled_c(source, "Nothing", ("-shared", "-fPIC")) == library
    assert library.stat().st_mtime_ns == before
    source.write_text("int seven(void) { return 8; }\n")
    other = compiled_c(source, "Nothing", ("-shared", "-fPIC"))
    assert other not in (None, library) and ctypes.CDLL(str(other)).seven() == 8


@needs_compiler
def test_what_does_not_compile_is_told(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source.write_text("int seven(")
    assert compiled_c(source, "The one in Python") is None
    told = capsys.readouterr().err
    assert "seven.c did not compile" in told and "The one in Python takes its place." in told


def test_without_a_compiler_nothing_is_said(source: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setenv("PATH", "/nowhere")
    assert compiled_c(source, "Nothing") is None and capsys.readouterr().err == ""


def test_a_compiler_that_is_none(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake = tmp_path / "bin" / "cc"
    fake.parent.mkdir()
    fake.touch(0o755)
    monkeypatch.setenv("PATH", str(fake.parent))
    assert compiled_c(source, "The one in Python") is None
    assert "takes its place" in capsys.readouterr().err


@needs_compiler
def test_a_damaged_library_leaves_python(capsys: pytest.CaptureFixture[str]) -> None:
    library = compiled_c(chunk_reader.SOURCE, "Nothing", ("-shared", "-fPIC"))
    assert library is not None
    library.write_bytes(b"")
    assert chunk_reader.compiled_reader() is None
    assert "takes its place" in capsys.readouterr().err
