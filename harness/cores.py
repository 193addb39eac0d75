"""Which CPU cores the client, the engine and the harness itself run on, so that they do not disturb each other."""

import os
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CoreShares:
    """Cores by duty; None means not pinned."""

    engine: tuple[int, ...] | None
    client: tuple[int, ...] | None
    harness: tuple[int, ...] | None

    def engine_threads(self) -> int:
        """How many threads an engine can use without stepping on the client."""
        return len(self.engine or available_cores())


def share_cores(available: list[int], pin: bool, workers: int = 1) -> CoreShares:
    """The last core is the client's, the one before it (from four cores on) the harness's, the rest the engine's.

    With fewer than four the harness shares the client's core, where it sleeps while the clock runs; with one core
    nothing can be separated. A client of several workers has as many cores, the last ones, where two more are left;
    else nobody is confined.
    """
    if not pin or len(available) < 2:
        return CoreShares(None, None, None)
    if workers > 1:
        if len(available) < workers + 2:
            return CoreShares(None, None, None)
        rest, own = available[:-workers], available[-workers:]
        return CoreShares(tuple(rest[:-1]), tuple(own), (rest[-1],))
    if len(available) < 4:
        return CoreShares(tuple(available[:-1]), (available[-1],), (available[-1],))
    return CoreShares(tuple(available[:-2]), (available[-1],), (available[-2],))


def worker_cores(available: list[int], pin: bool, workers: int, elsewhere: bool) -> CoreShares:
    """Where the engine is somebody else's: cores for the workers, the last ones, if one more is left.

    elsewhere: whether it runs on another machine. On this one nobody knows which cores it uses, so a single worker
    is not confined to one that may be the engine's.
    """
    if not pin or (workers < 2 and not elsewhere) or len(available) <= workers:
        return CoreShares(None, None, None)
    return CoreShares(None, tuple(available[-workers:]), None)


def available_cores() -> list[int]:
    """Cores this process may run on."""
    return sorted(os.sched_getaffinity(0))
