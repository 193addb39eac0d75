"""Whatever way the harness goes, nothing of the engine stays."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from backends.base import LaunchSpec
from backends.process import EngineProcess
from harness.core.errors import EngineError
from tests.support.waiting import gone, wait_until

# An engine with a child, a child in a session of its own, and a daemon whose parent has died already.
_TREE = """
sleep 1000 & echo $!
setsid sleep 1000 & echo $!
(setsid sh -c 'echo $$; exec sleep 1000' &)
wait
"""
_HARNESS = """
import os, sys, time
from pathlib import Path
from backends.base import LaunchSpec
from backends.process import EngineProcess
engine = EngineProcess.start(LaunchSpec(("sh", "-c", sys.argv[2])), Path(sys.argv[1]))
if len(sys.argv) > 3 and os.fork() == 0:
    time.sleep(1000)
print(engine.pid, flush=True)
time.sleep(1000)
"""


def _shell(script: str, log: Path, cpus: list[int] | None = None) -> EngineProcess:
    return EngineProcess.start(LaunchSpec(("sh", "-c", script)), log, cpus)


def _pids(log: Path, count: int) -> list[int]:
    wait_until(lambda: len(log.read_text().split()) == count, f"{count} processes")
    return [int(word) for word in log.read_text().split()]


def _all_gone(pids: list[int]) -> bool:
    return all(gone(pid) for pid in pids)


def test_stop_ends_the_whole_tree(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    engine = _shell(_TREE, log)
    pids = [engine.pid, *_pids(log, 3)]
    assert not any(gone(pid) for pid in pids)
    engine.stop()
    assert _all_gone(pids)
    assert not engine.alive()
    engine.stop()


@pytest.mark.parametrize(
    "forked_copy", [False, True], ids=["alone", "with a forked copy that holds the socket"]
)
def test_killing_the_harness_outright_ends_the_whole_tree(tmp_path: Path, forked_copy: bool) -> None:
    log = tmp_path / "engine.log"
    arguments = [sys.executable, "-c", _HARNESS, str(log), _TREE, *(["fork"] if forked_copy else [])]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, start_new_session=True) as harness:
        assert harness.stdout is not None
        pids = [int(harness.stdout.readline()), *_pids(log, 3)]
        harness.kill()
        wait_until(lambda: _all_gone(pids), "the engine's tree ends")
        os.killpg(harness.pid, signal.SIGKILL)  # the forked copy, if there is one


def test_leaving_the_block_by_an_exception_ends_the_tree(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    pids = []
    with pytest.raises(KeyboardInterrupt), _shell(_TREE, log) as engine:
        pids = [engine.pid, *_pids(log, 3)]
        raise KeyboardInterrupt
    assert _all_gone(pids)


def test_an_engine_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    engine = _shell("trap '' TERM; echo $$; while :; do sleep 1; done", log)
    _pids(log, 1)
    engine.stop()
    assert gone(engine.pid)


def test_killing_the_supervisor_ends_the_engine(tmp_path: Path) -> None:
    with _shell("exec sleep 1000", tmp_path / "engine.log") as engine:
        stat = Path(f"/proc/{engine.pid}/stat").read_text()
        os.kill(int(stat.rpartition(")")[2].split()[1]), signal.SIGKILL)
        wait_until(lambda: gone(engine.pid), "the engine ends")


@pytest.mark.parametrize(("script", "status"), [("exit 7", 7), ("exit 0", 0), ("kill -9 $$", 137)])
def test_the_engines_own_end_is_reported(tmp_path: Path, script: str, status: int) -> None:
    with _shell(script, tmp_path / "engine.log") as engine:
        wait_until(lambda: not engine.alive(), "the engine ends")
        assert engine.exit_status == status


def test_what_an_engine_leaves_behind_is_ended_with_it(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    with _shell("(setsid sh -c 'echo $$; exec sleep 1000' &); sleep 0.3; exit 3", log) as engine:
        pids = _pids(log, 1)
        wait_until(lambda: not engine.alive(), "the engine ends")
        assert engine.exit_status == 3
        assert _all_gone(pids)


def test_a_command_that_does_not_exist_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"/no/such/python: No such file or directory.*backend\.python"):
        EngineProcess.start(LaunchSpec(("/no/such/python", "-m", "x")), tmp_path / "engine.log")


def test_output_environment_cores_and_last_words(tmp_path: Path) -> None:
    core = min(os.sched_getaffinity(0))
    program = (
        "import os; print(os.environ['GREETING'], os.sched_getaffinity(0)); raise SystemExit('a\\nb\\nc\\nd')"
    )
    spec = LaunchSpec((sys.executable, "-c", program), env={"GREETING": "hello"})
    with EngineProcess.start(spec, tmp_path / "engine.log", [core]) as engine:
        wait_until(lambda: not engine.alive(), "the engine ends")
        assert f"hello {{{core}}}" in (tmp_path / "engine.log").read_text()
        assert engine.last_words(2) == "c\nd"


def test_it_imports_the_standard_library_only() -> None:
    program = (
        "import sys, backends.supervisor as s;"
        "own = {m for m in sys.modules if m.partition('.')[0] in ('harness', 'backends', 'workloads')};"
        "assert own == {'backends', 'backends.supervisor'}, own;"
        "foreign = [m for m in sys.modules if getattr(sys.modules[m], '__file__', None) and"
        " 'site-packages' in sys.modules[m].__file__];"
        "assert not foreign, foreign"
    )
    subprocess.run([sys.executable, "-S", "-c", program], check=True)
