"""The measuring processes as the harness sees them: start, common start instant, progress, end."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import wait
from pathlib import Path
from typing import IO, Any

import harness
from harness.client import counters as count
from harness.client.job import Progress
from harness.client.permits import SharedPermits
from harness.client.setup import Setup, send_setup
from harness.client.stored import read_result

_POLL_S = 0.1
_POLL_UNTIL_READY_S = 0.005
_START_AHEAD_NS = 100_000_000  # between "all are ready" and the common start
_PATIENCE_S = 30.0  # for a client that was told to stop; it needs the time to write what it holds


class Worker:
    """One `python -m harness.client` and the counters it shares with us."""

    def __init__(self, setup: Setup, log: Path, permits: tuple[int, int] | None) -> None:
        self.setup = setup
        self.log = log
        self.fd = count.create_counters()
        self._counters = count.Counters(self.fd)
        self.counters = self._counters.values
        root = str(Path(harness.__path__[0]).parent)
        paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "harness.client"],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                pass_fds=(self.fd, *(permits or ())),
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
                start_new_session=True,  # Ctrl-C reaches the harness, which then tells the client
            )
        # Readable once the process has ended. Popen.wait with a timeout looks a hundred times a second instead.
        self.end_fd = os.pidfd_open(self.process.pid)

    @property
    def pipe(self) -> IO[bytes]:
        """Its standard input, whose end tells it to stop."""
        if self.process.stdin is None:
            raise RuntimeError("the client has no standard input")
        return self.process.stdin

    @property
    def failed(self) -> bool:
        """Whether it has ended otherwise than it should."""
        return bool(self.process.poll())

    def tell(self, permits: tuple[int, int] | None) -> None:
        """Send it its setup. A worker that died tells why by its exit code and its log."""
        with contextlib.suppress(BrokenPipeError):
            send_setup(self.setup.with_descriptors(self.fd, permits), self.pipe)

    def close(self) -> None:
        """Let go of what we share."""
        self._counters.close()
        os.close(self.fd)
        os.close(self.end_fd)

    def result(self) -> dict[str, Any]:
        """What it left; empty if it left nothing."""
        return read_result(Path(self.setup.result))

    def failure(self, interrupted: bool) -> str | None:
        """Why it ended otherwise than it should; an interruption explains any exit code."""
        ended = self.process.returncode
        told = self.result().get("failure")
        if told is not None or ended == 0 or interrupted:
            return None if told is None else str(told)
        if ended == os.EX_IOERR:
            where = Path(self.setup.journal).parent
            return f"its raw record could not be written to {where}. Free some space, or choose another results_dir."
        lines = [line for line in self.log.read_text(errors="replace").splitlines() if line.strip()]
        return lines[-1] if lines else f"it ended without a word (status {ended})."


def run_workers(
    setups: Sequence[Setup],
    log: Path,
    cap: int | None,
    total: int,
    on_progress: Callable[[Progress], None],
    keep_going: Callable[[], bool],
) -> tuple[list[Worker], bool]:
    """Run one worker for each setup to their ends; return them, and whether an interruption ended it.

    cap: requests that all of them together may have in flight, None where each counts for itself. The first worker
    that fails ends the others.
    """
    permits = SharedPermits.create(min(cap, total)) if cap is not None and len(setups) > 1 else None
    workers: list[Worker] = []
    interrupted = False
    try:
        for number, setup in enumerate(setups):
            workers.append(Worker(setup, log.with_suffix(f".{number}.log") if number else log, permits))
        _follow(workers, permits, total, on_progress, keep_going)
    except KeyboardInterrupt:
        interrupted = True
    finally:
        _end([worker.process for worker in workers], [worker.pipe for worker in workers])
        for worker in workers:
            worker.close()
        for end in permits or ():
            os.close(end)
    return workers, interrupted


def _follow(
    workers: list[Worker],
    permits: tuple[int, int] | None,
    total: int,
    on_progress: Callable[[Progress], None],
    keep_going: Callable[[], bool],
) -> None:
    for worker in workers:
        worker.tell(permits)
    started = len(workers) == 1  # one starts by itself
    while keep_going():
        running = [worker for worker in workers if worker.process.poll() is None]
        if not running or any(worker.failed for worker in workers):
            break
        if not started and all(worker.counters[count.READY] for worker in running):
            start_ns = time.monotonic_ns() + _START_AHEAD_NS
            for worker in workers:
                worker.counters[count.START_AT_NS] = start_ns
            started = True
        wait([worker.end_fd for worker in running], _POLL_S if started else _POLL_UNTIL_READY_S)
        for worker in running:
            worker.process.poll()  # one that has ended is no zombie when others are told of it
        on_progress(_progress([worker.counters for worker in workers], total))


def _end(processes: list[subprocess.Popen[bytes]], pipes: list[IO[bytes]]) -> None:
    """Close their inputs, which tells them to stop; insist if they do not."""
    for pipe in pipes:
        with contextlib.suppress(BrokenPipeError):
            pipe.close()
    patient_until = time.monotonic() + _PATIENCE_S
    for process in processes:
        try:
            process.wait(max(0.0, patient_until - time.monotonic()))
        except BaseException as error:
            for other in processes:
                other.kill()
                other.wait()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise


def _progress(counters: list[memoryview], total: int) -> Progress:
    def together(name: int) -> int:
        return sum(values[name] for values in counters)

    states = [values[count.STATE] for values in counters]
    started = [values[count.STARTED_NS] for values in counters if values[count.STARTED_NS]]
    return Progress(
        state=count.STATES[min(states)],
        elapsed_s=max(0.0, (time.monotonic_ns() - min(started)) / 1e9) if started else 0.0,
        total=total,
        sent=together(count.SENT),
        finished=together(count.FINISHED),
        errors=together(count.ERRORS),
        in_flight=together(count.IN_FLIGHT),
        waiting=together(count.WAITING),
        chunks=together(count.CHUNKS),
    )
