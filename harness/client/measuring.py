"""Runs the measuring client and turns what it recorded into tables: the room's one entrance."""

import dataclasses
import heapq
import time
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path

from harness.client.exchanges import RawExchange, stored_exchanges
from harness.client.fanout import split_setup
from harness.client.job import ClientJob, Measurement, Progress
from harness.client.merging import merged_result
from harness.client.outcome import Outcome, outcome_of
from harness.client.prepare import Prepared, prepare
from harness.client.tables import tables
from harness.client.workers import Worker, run_workers
from harness.core.errors import HarnessError
from harness.core.interrupts import held_back
from harness.core.secrets import hidden, secrets_of
from harness.core.tokenizer import Tokenizer
from harness.metrics.window import measured_window


def measure(
    job: ClientJob,
    on_progress: Callable[[Progress], None],
    keep_going: Callable[[], bool] = lambda: True,
) -> Measurement:
    """Drive one phase of load in a process of its own, or several, and return what it measured.

    `on_progress` and `keep_going` are called about ten times a second in this process. Ctrl-C, SIGTERM, or
    `keep_going` that says no ends the run early; what was measured until then is returned with
    `stopped_early`, however often somebody asks. Raises UsageError for a job that cannot be, HarnessError if
    the client process did not run.
    """
    prepared = prepare(job)
    setups = split_setup(prepared.setup, job.workers, job.load.concurrency)
    with held_back() as signals:
        workers, interrupted = run_workers(
            setups,
            prepared.log,
            prepared.setup.limits.cap,
            prepared.total,
            on_progress,
            lambda: not signals and keep_going(),
        )
        interrupted = interrupted or bool(signals)
        measurement = _measurement(job, prepared, workers, interrupted)
        return dataclasses.replace(measurement, interrupted=interrupted or bool(signals))


def _measurement(job: ClientJob, prepared: Prepared, workers: list[Worker], interrupted: bool) -> Measurement:
    """What the workers left on disk, as the tables that one of them would have left."""
    result = merged_result([worker.result() for worker in workers])
    journals = [stored_exchanges(Path(worker.setup.journal)) for worker in workers]
    exchanges = heapq.merge(*journals, key=attrgetter("request"))
    secrets = secrets_of(job.endpoint.headers)
    tokenizer = Tokenizer.from_folder(job.tokenizer_folder)
    before = time.thread_time()  # other threads sample meanwhile
    requests, events = tables(
        (_outcome(exchange, secrets) for exchange in exchanges),
        prepared.requests,
        job.phase,
        tokenizer,
    )
    parse_cpu_s = time.thread_time() - before
    failures = (worker.failure(interrupted) for worker in workers)
    failure = next((told for told in failures if told is not None), None)
    if failure is not None and requests.empty:
        raise HarnessError(f"The measuring client did not run: {failure}")
    window = measured_window(requests, result.get("end_ns"))
    nothing_ns: int = result.get("start_ns") or 0
    return Measurement(
        requests=requests,
        events=events,
        window_start_ns=window.start_ns if window else nothing_ns,
        window_end_ns=window.end_ns if window else nothing_ns,
        stopped_early=interrupted or bool(result.get("stopped")) or failure is not None,
        client={key: value for key, value in result.items() if key not in ("start_ns", "end_ns", "stopped")}
        | {"failure": failure, "parse_cpu_s": parse_cpu_s},
    )


def _outcome(exchange: RawExchange, secrets: list[str]) -> Outcome:
    outcome = outcome_of(exchange)
    outcome.detail = hidden(outcome.detail, secrets)
    outcome.answer.unexpected_sample = hidden(outcome.answer.unexpected_sample, secrets)
    return outcome
