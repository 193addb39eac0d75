"""Runs the measuring client and turns what it recorded into tables: the room's one entrance."""

import contextlib
import dataclasses
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import orjson

import harness
from harness.client import counters as count
from harness.client.exchanges import RawExchange, stored_exchanges
from harness.client.job import ClientJob, Measurement, Progress
from harness.client.outcome import Outcome, outcome_of
from harness.client.prepare import Prepared, prepare
from harness.client.setup import Setup, send_setup
from harness.client.tables import tables
from harness.core.errors import HarnessError
from harness.core.interrupts import held_back
from harness.core.secrets import hidden, secrets_of
from harness.core.tokenizer import Tokenizer

_POLL_S = 0.1
_PATIENCE_S = 30.0  # for a client that was told to stop; it needs the time to write what it holds


def measure(
    job: ClientJob,
    on_progress: Callable[[Progress], None],
    keep_going: Callable[[], bool] = lambda: True,
) -> Measurement:
    """Drive one phase of load in a process of its own and return what it measured.

    `on_progress` and `keep_going` are called about ten times a second in this process. Ctrl-C, SIGTERM, or
    `keep_going` that says no ends the run early; what was measured until then is returned with
    `stopped_early`, however often somebody asks. Raises UsageError for a job that cannot be, HarnessError if
    the client process did not run.
    """
    prepared = prepare(job)
    with held_back() as signals:
        fd = count.create_counters()
        try:
            ended, interrupted = _run(prepared, fd, on_progress, lambda: not signals and keep_going())
        finally:
            os.close(fd)
        interrupted = interrupted or bool(signals)
        measurement = _measurement(job, prepared, ended, interrupted)
        return dataclasses.replace(measurement, interrupted=interrupted or bool(signals))


def _measurement(job: ClientJob, prepared: Prepared, ended: int, interrupted: bool) -> Measurement:
    """What the client left on disk, as tables."""
    result = _result(Path(prepared.setup.result))
    exchanges = stored_exchanges(Path(prepared.setup.journal))
    span = _Span()
    secrets = secrets_of(job.endpoint.headers)
    requests, events = tables(
        (_outcome(exchange, secrets) for exchange in span.watch(exchanges)),
        prepared.requests,
        job.phase,
        Tokenizer.from_folder(job.tokenizer_folder),
    )
    failure = result.get("failure") or (None if ended == 0 or interrupted else _last_words(prepared, ended))
    if failure is not None and requests.empty:
        raise HarnessError(f"The measuring client did not run: {failure}")
    start_ns, end_ns = span.window(result)
    return Measurement(
        requests=requests,
        events=events,
        window_start_ns=start_ns,
        window_end_ns=end_ns,
        stopped_early=interrupted or bool(result.get("stopped")) or failure is not None,
        client={key: value for key, value in result.items() if key not in ("start_ns", "end_ns", "stopped")}
        | {"failure": failure},
    )


def _run(
    prepared: Prepared, fd: int, on_progress: Callable[[Progress], None], keep_going: Callable[[], bool]
) -> tuple[int, bool]:
    """Start the client, follow it to its end; return its exit code and whether an interruption ended it."""
    counters = count.Counters(fd)
    root = str(Path(harness.__path__[0]).parent)
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    setup = prepared.setup.with_counters(fd)
    with prepared.log.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "harness.client"],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            pass_fds=(fd,),
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            start_new_session=True,  # Ctrl-C reaches the harness, which then tells the client
        )
    interrupted = False
    try:
        _follow(process, setup, counters.values, prepared.total, on_progress, keep_going)
    except KeyboardInterrupt:
        interrupted = True
    finally:
        _end(process)
        counters.close()
    return process.returncode, interrupted


def _follow(
    process: subprocess.Popen[bytes],
    setup: Setup,
    counters: memoryview,
    total: int,
    on_progress: Callable[[Progress], None],
    keep_going: Callable[[], bool],
) -> None:
    try:
        send_setup(setup, _pipe(process))
    except BrokenPipeError:
        return  # it died; its exit code and its log tell why
    while keep_going():
        try:
            process.wait(_POLL_S)
        except subprocess.TimeoutExpired:
            on_progress(_progress(counters, total))
        else:
            on_progress(_progress(counters, total))
            return


def _end(process: subprocess.Popen[bytes]) -> None:
    """Close its input, which tells it to stop; insist if it does not."""
    with contextlib.suppress(BrokenPipeError):
        _pipe(process).close()
    try:
        process.wait(_PATIENCE_S)
    except BaseException as error:
        process.kill()
        process.wait()
        if not isinstance(error, subprocess.TimeoutExpired):
            raise


def _pipe(process: subprocess.Popen[bytes]) -> IO[bytes]:
    if process.stdin is None:
        raise RuntimeError("the client has no standard input")
    return process.stdin


def _progress(counters: memoryview, total: int) -> Progress:
    started = counters[count.STARTED_NS]
    return Progress(
        state=count.STATES[counters[count.STATE]],
        elapsed_s=(time.monotonic_ns() - started) / 1e9 if started else 0.0,
        total=total,
        sent=counters[count.SENT],
        finished=counters[count.FINISHED],
        errors=counters[count.ERRORS],
        in_flight=counters[count.IN_FLIGHT],
        chunks=counters[count.CHUNKS],
    )


def _result(path: Path) -> dict[str, Any]:
    try:
        result: dict[str, Any] = orjson.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    return result


class _Span:
    """From the first scheduled instant to the last end of the exchanges that pass by."""

    def __init__(self) -> None:
        self.opened: int | None = None
        self.closed = 0

    def watch(self, exchanges: Iterable[RawExchange]) -> Iterator[RawExchange]:
        """The same exchanges."""
        for exchange in exchanges:
            scheduled = exchange.scheduled_ns or 0
            self.opened = scheduled if self.opened is None else min(self.opened, scheduled)
            self.closed = max(self.closed, exchange.end_ns or _last_seen(exchange))
            yield exchange

    def window(self, result: dict[str, Any]) -> tuple[int, int]:
        """The measured window, which ends at the stated close, else at the last end."""
        if self.opened is None:
            start: int = result.get("start_ns") or 0
            return start, start
        stated: int | None = result.get("end_ns")
        return self.opened, max(self.opened, self.closed if stated is None else stated)


def _outcome(exchange: RawExchange, secrets: list[str]) -> Outcome:
    outcome = outcome_of(exchange)
    outcome.detail = hidden(outcome.detail, secrets)
    outcome.unexpected_sample = hidden(outcome.unexpected_sample, secrets)
    return outcome


def _last_seen(exchange: RawExchange) -> int:
    return max([ns for ns, _ in exchange.body] + [exchange.sent_ns or exchange.scheduled_ns or 0])


def _last_words(prepared: Prepared, ended: int) -> str:
    if ended == os.EX_IOERR:
        where = Path(prepared.setup.journal).parent
        return (
            f"its raw record could not be written to {where}. Free some space, or choose another results_dir."
        )
    log = prepared.log
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else "it ended without a word."
