"""What is said while Hydra composes, which takes a while where many runs are asked for."""

import signal
import threading
import time
from collections.abc import Iterator

import pytest

from harness import app
from harness.app import patience, run_command, sweeps


def test_who_waits_is_told_once(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(app, "_SILENT_S", 0)
    said: list[str] = []
    told = threading.Event()

    def say(line: str) -> None:
        said.append(line)
        told.set()

    with patience(say):
        assert told.wait(60)
    assert said == ["Composing the configurations of all runs …"]


def test_nothing_is_said_where_it_was_quick(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(app, "_SILENT_S", 3600)
    said: list[str] = []
    before = threading.active_count()
    with patience(said.append):
        pass
    assert not said and threading.active_count() == before


def test_what_is_being_said_when_it_ends_comes_before_the_end(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(app, "_SILENT_S", 0)
    said: list[str] = []
    begun = threading.Event()

    def slowly(line: str) -> None:
        begun.set()
        time.sleep(0.1)
        said.append(line)

    with patience(slowly):
        assert begun.wait(60)
    assert len(said) == 1


@pytest.mark.parametrize(
    ("arguments", "several"),
    [
        ([], False),
        (["load.concurrency=2"], False),
        (["-m", "load.concurrency=1,2"], True),
        (["load.concurrency=1,2", "--multirun"], True),
        (["experiment=nightly"], True),
        (["experiment=default"], True),
        (["experiment=null"], False),
        (["experiment=there_is_no_such"], False),
    ],
)
def test_which_commands_compose_several_runs(arguments: list[str], several: bool):
    assert sweeps(arguments) is several


@pytest.fixture
def sigterm() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("sigterm")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["--cfg", "job"], False), (["-m", "load.concurrency=1,2", "load.nothing=3"], True)],
)
def test_a_command_says_it_of_a_sweep_alone(
    arguments: list[str], said: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(app, "_SILENT_S", 0)
    run_command([*arguments, "backend=endpoint", "backend.base_url=http://127.0.0.1:9"])
    assert ("Composing the configurations" in capsys.readouterr().err) is said
