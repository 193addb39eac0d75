"""Starts the truth server: the one in C where there is a compiler, else the one in Python."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import harness
from harness.client.priority import go_first
from harness.core.compiling import compiled_c
from harness.core.errors import HarnessError

SOURCE = Path(__file__).with_name("truth_server.c")
_PATIENCE_S = 30.0


@dataclass(frozen=True, slots=True)
class Schedule:
    """When the truth server sends, in microseconds; truth_server.c says what each means."""

    ttft_us: int
    itl_us: int
    spread_us: int = 0


@dataclass(slots=True)
class RunningServer:
    """A truth server that answers. log exists once the context has been left."""

    process: subprocess.Popen[bytes]
    base_url: str
    log: Path
    language: str
    cpu_s: float = 0.0  # user and system, known once it has ended


def compiled() -> Path | None:
    """The server in C, compiled once for each version of its source; None where nothing compiles it."""
    return compiled_c(SOURCE, instead="The server in Python")


def command_of(language: str) -> list[str] | None:
    """The command line of the server in "c" or "python"; None where there is none."""
    if language == "python":
        return [sys.executable, "-m", "harness.calibrate.truth_server"]
    program = compiled()
    return [str(program)] if program else None


@contextmanager
def truth_server(
    schedule: Schedule, folder: Path, cpus: Sequence[int] | None = None, language: str | None = None
) -> Iterator[RunningServer]:
    """A server on a free port, pinned to `cpus`; it ends, and writes its log, when the context is left.

    language: "c" or "python"; None takes C where it can be had. Raises HarnessError if it does not start.
    """
    command = command_of(language) if language else command_of("c")
    language = language or ("c" if command else "python")
    command = command or command_of("python") or []
    log = folder / "truth.log"
    log.unlink(missing_ok=True)
    arguments = ["0", str(log), str(schedule.ttft_us), str(schedule.itl_us), str(schedule.spread_us)]
    root = str(Path(harness.__path__[0]).parent)
    process = subprocess.Popen(
        command + arguments,
        stdin=subprocess.PIPE,  # its end of file, should this process be killed, ends the server
        stdout=subprocess.PIPE,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])]),
        },
        start_new_session=True,  # Ctrl-C is for the command that started it
    )
    try:
        if process.stdout is None or process.stdin is None:
            raise RuntimeError("the server has no pipes")
        line = process.stdout.readline().decode()
        if not line.startswith("listening on "):
            raise HarnessError("The truth server did not start; its own words are above.")
        if cpus is not None:
            os.sched_setaffinity(process.pid, cpus)
            go_first(
                process.pid
            )  # on a core of its own only: elsewhere it could keep the client from running
        running = RunningServer(process, f"http://127.0.0.1:{line.split()[-1]}", log, language)
        yield running
        process.stdin.close()
        running.cpu_s = _wait(process)
    finally:
        if process.returncode is None:
            process.kill()
            process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


def _wait(process: subprocess.Popen[bytes]) -> float:
    """Wait for its end; returns the CPU seconds it used."""
    import psutil

    used = psutil.Process(process.pid).cpu_times()
    try:
        process.wait(_PATIENCE_S)
    except subprocess.TimeoutExpired as error:
        raise HarnessError("The truth server did not end; run it again.") from error
    return float(used.user + used.system)
