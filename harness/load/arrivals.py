"""What an arrival process is: a pure function from the state of a run to the wait before its next session."""

from typing import Protocol

from harness.load.closed import Closed
from harness.load.constant import Constant
from harness.load.poisson import Poisson

NAMES = ("closed", "constant", "poisson")


class ArrivalProcess(Protocol):
    """Decides when sessions start. It holds no clock and no state that a caller could see."""

    @property
    def open_loop(self) -> bool:
        """Whether sessions start by a schedule of their own, whatever the server does."""
        ...

    def wait(self, elapsed_s: float, started: int, finished: int) -> float | None:
        """Seconds from `elapsed_s` until session number `started` (from 0) is due.

        A value of 0 or less means that it is due, or was due that long ago. None means that it waits for one
        of the sessions in flight to finish. All times count from the start of the run.
        """
        ...


def arrival_process(name: str, *, rate: float | None, concurrency: int | None, seed: int) -> ArrivalProcess:
    """The process called `name`, from options that `harness.load.check.check_load` has accepted."""
    if name == "closed":
        return Closed(concurrency or 0)
    if name == "constant":
        return Constant(rate or 0.0)
    if name == "poisson":
        return Poisson(rate or 0.0, seed)
    raise ValueError(f"Unknown arrival process {name!r}; there are {', '.join(NAMES)}.")
