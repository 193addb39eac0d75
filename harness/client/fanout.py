"""How a load is divided among worker processes, and what each of them is told."""

import resource
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from harness.client.setup import Setup
from harness.core.errors import UsageError

_OTHER_FILES = 64  # that a worker has open beside its connections


def split_setup(setup: Setup, workers: int, slots: int | None) -> list[Setup]:
    """The setups of up to `workers` workers, all parts of `setup`: sessions, connections, slots and cores.

    slots: sessions (closed loop) or requests (a bound in an open loop) that may be in flight, None for no bound.
    There are never more workers than sessions or slots. Each keeps the request numbers of the whole, and writes files
    of its own.
    """
    count = max(1, min(workers, len(setup.sessions), slots or workers))
    if count == 1:
        return [setup]
    return [
        replace(
            setup,
            worker=number,
            workers=count,
            sessions=setup.sessions[number::count],
            connections=len(range(number, setup.connections, count)),
            journal=_own(setup.journal, number),
            result=_own(setup.result, number),
            cpus=_own_cores(setup.cpus, number, count),
        )
        for number in range(count)
    ]


def _own(path: str, number: int) -> str:
    """The first worker keeps the name."""
    if number == 0:
        return path
    own = Path(f"{path}.{number}")
    own.unlink(missing_ok=True)
    return str(own)


def _own_cores(cpus: Sequence[int] | None, number: int, count: int) -> tuple[int, ...] | None:
    """A core each where there are enough, else all of them for all."""
    if cpus is None or len(cpus) < count:
        return None if cpus is None else tuple(cpus)
    return (cpus[number],)


def check_open_files(in_flight: int, workers: int, most: int | None = None) -> None:
    """Raise UsageError where the open files a worker may have do not suffice for its part of `in_flight`.

    most: the limit up to which a process may raise its own; None asks the system.
    """
    if most is None:
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = -(-in_flight // workers) + _OTHER_FILES
    if most != resource.RLIM_INFINITY and needed > most:
        raise UsageError(
            f"load.concurrency={in_flight} needs {needed} open files in each of {workers} worker(s), and the hard "
            f"limit is {most} (ulimit -Hn). Raise it, lower the concurrency, or give more load.workers."
        )
