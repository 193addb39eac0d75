"""`python -m harness.engines` interrupted while it installs, by a registry that never answers."""

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from backends.environment_making import being_made
from harness.engines.catalogue import default_offer
from tests.support.command_line import run, start
from tests.support.waiting import wait_until

_INSTALL = ["harness.engines", "action=install", "engine=openvino"]


@contextmanager
def silent_registry() -> Iterator[tuple[socket.socket, dict[str, str]]]:
    """A server that takes connections and says nothing, and the settings that lead pip to it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}/simple"
        settings = {"PIP_INDEX_URL": address, "PIP_CONFIG_FILE": "/dev/null", "PIP_RETRIES": "0"}
        yield server, {**settings, "PIP_FIND_LINKS": "", "PIP_EXTRA_INDEX_URL": ""}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("INFERENCE_HARNESS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_an_interrupted_installation_leaves_nothing(cache: Path, tmp_path: Path) -> None:
    recipe = default_offer("openvino", "cpu").recipe
    with silent_registry() as (registry, settings):
        process = start(_INSTALL, tmp_path, **settings)
        connection, _ = registry.accept()  # pip is at work
        with connection:
            assert being_made(recipe)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Interrupted: nothing half-made is kept." in err
    assert "installed" not in out
    assert not recipe.folder().exists()
    assert not being_made(recipe)


def test_one_that_was_killed_is_not_taken_for_whole_and_its_pip_is_waited_for(
    cache: Path, tmp_path: Path
) -> None:
    recipe = default_offer("openvino", "cpu").recipe
    with silent_registry() as (registry, settings):
        process = start(_INSTALL, tmp_path, **settings)
        connection, _ = registry.accept()
        with connection:
            process.kill()
            process.communicate()
            assert recipe.folder().exists()
            assert not recipe.installed()
            assert being_made(recipe)  # pip outlived who started it, and may still write
    wait_until(lambda: not being_made(recipe), "pip ends, since its connection broke")
    doctor = run(["harness.engines", "action=doctor", "engine=openvino"], tmp_path)
    assert doctor.status == 1
    assert "its installation was interrupted. Type: python -m harness.engines action=install" in doctor.out
    removed = run(["harness.engines", "action=remove", "engine=openvino"], tmp_path)
    assert removed.status == 0
    assert f"Removed {recipe.folder()}" in removed.out
    assert not recipe.folder().exists()


def test_a_run_of_an_engine_that_is_missing_says_what_to_type(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    done = run(["harness", "backend=openvino", f"backend.python={tmp_path}/bare/bin/python"], tmp_path)
    assert done.status == 1
    assert "lacks openvino" in done.err
    assert "python -m harness.engines action=install engine=openvino device=cpu" in done.err


def test_a_reader_that_leaves_early_is_no_error(tmp_path: Path) -> None:
    process = start(["harness.engines"], tmp_path)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait() == 0
    process.stderr.close()
