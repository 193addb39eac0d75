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


def share_cores(available: list[int], pin: bool) -> CoreShares:
    """The last core is the client's, the one before it (from four cores on) the harness's, the rest the engine's.

    With fewer than four the harness shares the client's core, where it sleeps while the clock runs; with one core
    nothing can be separated.
    """
    if not pin or len(available) < 2:
        return CoreShares(None, None, None)
    if len(available) < 4:
        return CoreShares(tuple(available[:-1]), (available[-1],), (available[-1],))
    return CoreShares(tuple(available[:-2]), (available[-1],), (available[-2],))


def available_cores() -> list[int]:
    """Cores this process may run on."""
    return sorted(os.sched_getaffinity(0))
