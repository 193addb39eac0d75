"""One client on one load: run it twice against truth servers of its own and compare it with what they know."""

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from benchmarks.peer_readings import Reading, reading_of, tokens_sent
from benchmarks.peer_tools import Job, Tool
from harness.calibrate.loads import Load, two_cores
from harness.calibrate.log import TrueLog, read_log
from harness.calibrate.server import truth_server
from harness.core.errors import HarnessError

_PATIENCE_S = 240.0
_SHORTER = 10


@dataclass(frozen=True, slots=True)
class Case:
    """A load and on how many streams it is offered."""

    name: str
    title: str
    load: Load
    streams: int

    @property
    def most_tokens_per_s(self) -> float:
        """What a client is sent that loses no time between two requests of a stream."""
        load, schedule = self.load, self.load.schedule
        request_us = schedule.ttft_us + schedule.spread_us / 2 + (load.tokens - 1) * load.itl_us
        return self.streams * load.tokens / request_us * 1e6


@dataclass(frozen=True, slots=True)
class _Ran:
    """written: what the client's own report file holds. cpu_s: user and system, of all its processes."""

    written: str
    log: TrueLog
    cpu_s: float


def measure(tool: Tool, case: Case, environments: Path, tokenizer: Path) -> Reading:
    """The load, and one of as many requests with a tenth of the tokens, so that the difference is of tokens only."""
    short = replace(case.load, tokens=max(2, case.load.tokens // _SHORTER))
    few = _run(tool, short, case.streams, environments, tokenizer)
    whole = _run(tool, case.load, case.streams, environments, tokenizer)
    try:
        report = tool.report(json.loads(whole.written))
    except (KeyError, IndexError, TypeError) as error:
        raise HarnessError(f"its report lacks a figure: {error!r}") from error
    cpu_us = 1e6 * (whole.cpu_s - few.cpu_s) / (tokens_sent(whole.log) - tokens_sent(few.log))
    return reading_of(case.name, tool.name, report, whole.log, case.load, cpu_us)


def _run(tool: Tool, load: Load, streams: int, environments: Path, tokenizer: Path) -> _Ran:
    """One run of a client against a server of its own. Raises HarnessError with the client's last words."""
    server_cpus, _ = two_cores(sorted(os.sched_getaffinity(0)))
    with tempfile.TemporaryDirectory(prefix="peers-") as scratch:
        folder = Path(scratch)
        output, cpu, words = folder / "output", folder / "cpu", folder / "words"
        output.mkdir()
        with truth_server(load.schedule, folder, server_cpus) as server:
            command = tool.command(Job(load, streams, server.base_url, tokenizer, output), environments)
            status = _wait_for(command, tool, cpu, words)
        written = output / tool.written
        if status or not written.is_file():
            said = words.read_text(errors="replace").strip().splitlines()[-15:]
            raise HarnessError(f"failed with status {status}:\n  " + "\n  ".join(said))
        return _Ran(written.read_text(), read_log(folder / "truth.log"), float(cpu.read_text()))


def _wait_for(command: list[str], tool: Tool, cpu: Path, words: Path) -> int:
    """Run a command, its CPU time into `cpu`, all that it says into `words`; returns its status."""
    counted = [sys.executable, str(Path(__file__).with_name("tree_cpu.py")), str(cpu), *command]
    environment = {**os.environ, **tool.environment}
    with words.open("wb") as said:
        process = subprocess.Popen(
            counted,
            cwd=words.parent,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            env=environment,
        )
        try:
            return process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired as error:
            raise HarnessError(f"did not end within {_PATIENCE_S:.0f} s") from error
        finally:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End what is left of a process tree."""
    if process.poll() is None:
        for one in psutil.Process(process.pid).children(recursive=True):
            one.kill()
        process.kill()
        process.wait()
