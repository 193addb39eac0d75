"""Runs the measuring client and turns what it recorded into tables: the room's one entrance."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

from harness.client.fanout import split_setup
from harness.client.job import ClientJob, Measurement, Progress
from harness.client.prepare import Prepared, prepare
from harness.client.stored import Phase, stored_measurement
from harness.client.workers import Worker, run_workers
from harness.core.errors import HarnessError
from harness.core.interrupts import held_back


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
    """What the workers left, and how they ended."""
    phase = Phase.of(job, prepared.requests)
    journals = [Path(worker.setup.journal) for worker in workers]
    stored = stored_measurement(phase, journals, [worker.result() for worker in workers])
    failures = (worker.failure(interrupted) for worker in workers)
    failure = next((told for told in failures if told is not None), None)
    if failure is not None and stored.requests.empty:
        raise HarnessError(f"The measuring client did not run: {failure}")
    return dataclasses.replace(
        stored,
        stopped_early=interrupted or stored.stopped_early or failure is not None,
        client=stored.client | {"failure": failure},
    )
