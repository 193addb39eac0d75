"""The measuring process: `python -m harness.client`, told what to do over standard input.

It ends when its work is done, at SIGTERM, or when standard input ends, which also happens when its parent
dies.
"""

import asyncio
import contextlib
import os
import resource
import signal
import sys
from pathlib import Path
from time import monotonic_ns
from typing import Any

import orjson
import uvloop

from harness.client import counters as count
from harness.client.bodies import request_bytes
from harness.client.driver import Driver
from harness.client.history_link import HistoryLink
from harness.client.journal import Journal, Kind
from harness.client.permits import OwnPermits, SharedPermits
from harness.client.pool import Pool
from harness.client.priority import go_first
from harness.client.setup import Setup, receive_setup
from harness.client.share import Share
from harness.client.timeline import Timeline
from harness.client.vitals import Vitals
from harness.load.arrivals import arrival_process


def main() -> None:
    """Read the setup, measure, leave the result beside the journal."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the harness decides what Ctrl-C means
    setup = receive_setup(sys.stdin.buffer)
    if setup.cpus is not None:
        os.sched_setaffinity(0, setup.cpus)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    counters = count.Counters(setup.counters_fd)
    journal = Journal(Path(setup.journal))
    result = uvloop.run(_measure(setup, journal, counters.values))
    journal.close()
    if journal.failure is not None:
        result["failure"] = f"The raw record could not be written: {journal.failure}."
    try:
        _write_whole(Path(setup.result), orjson.dumps(result))
    except OSError:  # a full disk; the status says so, since nothing else can
        sys.exit(os.EX_IOERR)
    counters.values[count.STATE] = count.STATES.index("done")
    if result["failure"] is not None:  # other workers are not to go on alone
        sys.exit(os.EX_SOFTWARE)


def _payloads(setup: Setup) -> dict[int, bytes | None]:
    head = setup.head.encode("latin-1")
    bodies = Path(setup.bodies).read_bytes()
    return {
        turn.request: request_bytes(head, bodies[turn.offset : turn.offset + turn.length], turn.name)
        if turn.length
        else None
        for session in setup.sessions
        for turn in session
    }


async def _measure(setup: Setup, journal: Journal, counters: memoryview) -> dict[str, Any]:
    loop = asyncio.get_running_loop()
    timeline = Timeline(loop)
    vitals = Vitals(timeline)
    whole = arrival_process(**setup.arrival)
    opens_s = whole.wait(0.0, 0, 0) or 0.0  # the window opens when the first session is due, whoever's it is
    arrival = Share(whole, setup.worker, setup.workers) if setup.workers > 1 else whole
    permits = SharedPermits(setup.permits) if setup.permits else OwnPermits(setup.limits.cap)
    driver = Driver(
        setup, arrival, _payloads(setup), timeline, journal, counters, vitals.stop, permits, opens_s
    )
    pool = Pool(setup, journal, counters, driver)
    driver.sender = pool
    stopped = _heed_stop(loop, driver)
    mistakes = _heed_mistakes(loop, driver)
    link = await _start_history(setup, driver, journal)
    await pool.prepare()
    ready = pool.opened
    # Only on cores of its own: elsewhere it would push aside the very engine it measures.
    first = setup.cpus is not None and go_first()
    vitals.settle()
    start_ns = await _common_start(counters, stopped) if setup.workers > 1 else None
    vitals.start()
    if not (stopped or mistakes):
        await driver.run(start_ns)
    vitals.stop()
    await pool.close()
    if link is not None:
        await link.close()
    timeline.close()
    return {
        **vitals.figures(),
        **pool.stamps,
        "reader": pool.reader,
        "realtime": first,
        "start_ns": driver.start_ns,
        "end_ns": driver.end_ns,
        "stopped": bool(stopped),
        "failure": mistakes[0] if mistakes else None,
        "connections_ready": ready,
        "connections_opened": pool.opened,
        "connections_closed_idle": pool.closed_idle,
        "reconnects": pool.reconnects,
    }


async def _common_start(counters: memoryview, stopped: list[str]) -> int | None:
    """Say that all is ready, and wait for the instant at which all workers begin; None if none comes."""
    counters[count.READY] = 1
    while not (counters[count.START_AT_NS] or stopped):
        await asyncio.sleep(0.002)
    return counters[count.START_AT_NS] or None


async def _start_history(setup: Setup, driver: Driver, journal: Journal) -> HistoryLink | None:
    if setup.history is None:
        return None
    head = setup.head.encode("latin-1")
    names = {turn.request: turn.name for session in setup.sessions for turn in session}

    def on_body(request: int, tokens: int, body: bytes) -> None:
        if body:
            journal.add(Kind.PROMPT, request, monotonic_ns(), b"%d" % tokens)
        driver.built(request, request_bytes(head, body, names[request]) if body else None)

    link = await HistoryLink.start(setup.history, on_body, driver.builder_gone)
    driver.answered = link.answer
    return link


def _heed_stop(loop: asyncio.AbstractEventLoop, driver: Driver) -> list[str]:
    """Stop the driver at SIGTERM or the end of standard input; the list then holds the reason."""
    reasons: list[str] = []

    def stop(reason: str) -> None:
        reasons.append(reason)
        driver.stop()

    def on_input() -> None:
        with contextlib.suppress(BlockingIOError):
            if os.read(0, 4096) == b"":
                loop.remove_reader(0)
                stop("end of input")

    os.set_blocking(0, False)
    loop.add_reader(0, on_input)
    loop.add_signal_handler(signal.SIGTERM, stop, "SIGTERM")
    return reasons


def _heed_mistakes(loop: asyncio.AbstractEventLoop, driver: Driver) -> list[str]:
    """Stop the driver at an exception nobody caught, which would leave it waiting; the list then holds it."""
    mistakes: list[str] = []

    def note(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        failure = context.get("exception")
        if failure is not None and not isinstance(failure, OSError):  # those end in connection_lost
            mistakes.append(f"{context['message']}: {failure!r}")
            loop.call_soon(driver.stop)

    loop.set_exception_handler(note)
    return mistakes


def _write_whole(path: Path, data: bytes) -> None:
    temporary = path.with_name(f"{path.name}.part")  # of this worker alone: their names differ in the suffix
    temporary.write_bytes(data)
    temporary.replace(path)


if __name__ == "__main__":
    main()
