"""However a run ends, what was measured is kept and no process stays."""

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from harness.client import Progress, measure
from harness.core.errors import HarnessError
from tests.support.client_jobs import job, load, plan, quiet
from tests.support.fixtures import ScriptedServer
from tests.support.processes import command_of
from tests.support.scripts import Script

ENDLESS = Script(tokens=100_000, itl_ms=5)


def clients_of(pid: int) -> list[psutil.Process]:
    return [
        child
        for child in psutil.Process(pid).children(recursive=True)
        if "harness.client" in command_of(child)
    ]


def test_ctrl_c_keeps_what_was_measured(server: ScriptedServer, tmp_path: Path) -> None:
    server.play(ENDLESS, by_key={number: Script() for number in range(10)})

    def interrupt(progress: Progress) -> None:
        if progress.finished == 10 and progress.in_flight == 4:
            raise KeyboardInterrupt

    measured = measure(job(server.base_url, plan(30), tmp_path), interrupt)
    assert measured.stopped_early and list(measured.requests["ok"]) == [True] * 10 + [False] * 4
    assert set(measured.requests["error"].dropna()) == {"aborted"}
    assert not clients_of(os.getpid())


def test_requests_that_waited_for_a_slot_are_aborted_too(server: ScriptedServer, tmp_path: Path) -> None:
    server.play(ENDLESS)

    def interrupt(progress: Progress) -> None:
        if progress.in_flight == 2 and progress.elapsed_s > 0.1:
            raise KeyboardInterrupt

    options = load(name="constant", rate=1000.0, concurrency=2)
    measured = measure(job(server.base_url, plan(8), tmp_path, options), interrupt)
    assert list(measured.requests["error"]) == ["aborted"] * 8
    assert measured.requests["sent_ns"].notna().sum() == 2


def test_signals_while_it_ends_lose_nothing(server: ScriptedServer, tmp_path: Path) -> None:
    server.play(ENDLESS, by_key={number: Script() for number in range(10)})

    def interrupt(progress: Progress) -> None:
        if progress.finished == 10 and progress.in_flight == 4:
            for _ in range(3):
                os.kill(os.getpid(), signal.SIGINT)

    measured = measure(job(server.base_url, plan(30), tmp_path), interrupt)
    assert measured.interrupted and measured.stopped_early
    assert list(measured.requests["ok"]) == [True] * 10 + [False] * 4
    assert measured.client["failure"] is None


def test_a_caller_that_will_not_go_on(server: ScriptedServer, tmp_path: Path) -> None:
    server.play(ENDLESS)
    measured = measure(job(server.base_url, plan(4), tmp_path), quiet, lambda: not server.record())
    assert measured.stopped_early and not measured.interrupted
    assert set(measured.requests["error"]) == {"aborted"}


def test_an_exception_of_the_caller_ends_the_client(server: ScriptedServer, tmp_path: Path) -> None:
    server.play(ENDLESS)

    def fail(progress: Progress) -> None:
        if progress.in_flight:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        measure(job(server.base_url, plan(4), tmp_path), fail)
    assert not clients_of(os.getpid())


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_client_that_is_ended_from_outside(
    server: ScriptedServer, tmp_path: Path, how: signal.Signals
) -> None:
    server.play(ENDLESS, by_key={number: Script() for number in range(10)})

    def end(progress: Progress) -> None:
        if progress.finished == 10 and progress.elapsed_s > 1.3:  # what is older than a second is on disk
            for client in clients_of(os.getpid()):
                client.send_signal(how)

    measured = measure(job(server.base_url, plan(30), tmp_path), end)
    assert measured.stopped_early
    assert list(measured.requests["ok"]) == [True] * 10 + [False] * 4
    assert set(measured.requests["error"].dropna()) == {"aborted"}
    assert measured.window_end_ns > measured.window_start_ns


def test_a_disk_that_fills_up_keeps_what_is_on_it(server: ScriptedServer, tmp_path: Path) -> None:
    server.play(ENDLESS, by_key={number: Script() for number in range(10)})
    journal = tmp_path / "measured.journal"

    def fill(progress: Progress) -> None:
        if (
            progress.finished == 10 and progress.elapsed_s > 1.3
        ):  # from here on no file of the client may grow
            for client in clients_of(os.getpid()):
                resource.prlimit(client.pid, resource.RLIMIT_FSIZE, (0, 0))

    measured = measure(job(server.base_url, plan(30), tmp_path), fill)
    assert journal.stat().st_size > 0
    assert measured.stopped_early and not measured.interrupted
    assert "Free some space" in measured.client["failure"]
    assert measured.requests["ok"].sum() == 10


def test_the_client_ends_when_the_harness_is_killed(server: ScriptedServer, tmp_path: Path) -> None:
    server.play(ENDLESS)
    code = (
        "import sys; from pathlib import Path; from harness.client import measure;"
        "from tests.support.client_jobs import job, plan, quiet;"
        "measure(job(sys.argv[1], plan(4), Path(sys.argv[2])), quiet)"
    )
    harness = subprocess.Popen([sys.executable, "-c", code, server.base_url, str(tmp_path)])
    clients: list[psutil.Process] = []
    while not (clients and server.record()):
        assert harness.poll() is None
        clients = clients_of(harness.pid)
        time.sleep(0.05)
    harness.kill()
    harness.wait()
    _, alive = psutil.wait_procs(clients, timeout=20)
    assert not alive
    assert (tmp_path / "measured.journal").stat().st_size > 0


def test_a_client_that_cannot_start_says_why(
    server: ScriptedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho it has no legs >&2\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(broken))
    with pytest.raises(HarnessError, match="it has no legs"):
        measure(job(server.base_url, plan(1), tmp_path), quiet)


def test_an_empty_plan_measures_nothing(server: ScriptedServer, tmp_path: Path) -> None:
    measured = measure(job(server.base_url, [], tmp_path), quiet)
    assert measured.requests.empty and measured.events.empty
    assert measured.window_start_ns == measured.window_end_ns and not measured.stopped_early
