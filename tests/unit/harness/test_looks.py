"""What a run keeps where the look at the machine's own speed fails or is interrupted."""

import errno
import os
import signal
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
from hydra import compose, initialize_config_module
from rich.console import Console

from harness import run
from harness.config import register_schemas, typed
from harness.metrics.pace import Pace
from harness.recording import Prepared
from harness.records.reader import Run, read_run
from harness.run import Outcome, execute, prepare
from harness.screen import Screen

LOOK = Pace(1, 10.0, 7.0, (0,))


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Outcome, Run]]:
    """Executes a run in which each look is what it is given."""
    silent = Screen(Console(file=StringIO()), Console(file=StringIO()))

    def execution(*looks: Callable[[], Pace]) -> tuple[Outcome, Run]:
        left = iter(looks)
        monkeypatch.setattr(run, "take_look", lambda cores: next(left)())
        outcome = execute(_prepared(tmp_path, silent), silent, None, lambda *everything: None)
        return outcome, read_run(str(outcome.run_id), tmp_path)

    return execution


def _prepared(folder: Path, screen: Screen) -> Prepared:
    register_schemas()
    few = ["workload.requests=2", "workload.prompt_tokens=160", "load.warmup=0", f"results_dir={folder}"]
    with initialize_config_module("conf", version_base="1.3"):
        here = ["backend=endpoint", "backend.base_url=http://127.0.0.1:9"]
        return prepare(typed(compose("config", [*here, *few])), screen)


def raising(error: Exception) -> Callable[[], Pace]:
    def look() -> Pace:
        raise error

    return look


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (OSError(errno.EINVAL, "Invalid argument"), "Invalid argument"),
        (RuntimeError("can't start new thread"), "can't start new thread"),
        (MemoryError(), "MemoryError"),
    ],
)
def test_a_look_that_fails_costs_a_note_and_no_run(
    measured: Callable[..., tuple[Outcome, Run]], error: Exception, why: str
):
    outcome, record = measured(lambda: LOOK, raising(error))
    assert (outcome.status, outcome.error, record.reason) == ("complete", None, None)
    assert list(record.pace) == ["before"]
    (note,) = (note for note in record.fingerprint["notes"] if "own speed" in note)
    assert "after the run" in note and why in note
    outcome, record = measured(raising(error), lambda: LOOK)
    assert outcome.status == "complete" and list(record.pace) == ["after"]
    assert any("before the run" in note for note in record.fingerprint["notes"])


def test_who_interrupts_the_look_after_the_measurement_keeps_a_complete_run(
    measured: Callable[..., tuple[Outcome, Run]],
):
    def interrupted() -> Pace:
        os.kill(os.getpid(), signal.SIGINT)
        return LOOK

    outcome, record = measured(lambda: LOOK, interrupted)
    assert (outcome.status, outcome.error, outcome.interrupted) == ("complete", None, True)
    assert record.status == "complete" and list(record.pace) == ["before", "after"]
