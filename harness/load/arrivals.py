"""What an arrival process is: a pure function from the state of a run to the wait before its next session."""

from collections.abc import Callable
from typing import Any, Protocol

from harness.load.closed import Closed
from harness.load.constant import Constant
from harness.load.gamma import Gamma
from harness.load.poisson import Poisson
from harness.load.ramp import Ramp
from harness.load.steps import Steps
from harness.load.trace import Trace


class ArrivalProcess(Protocol):
    """Decides when sessions start. It holds no clock and no state that a caller could see."""

    @property
    def open_loop(self) -> bool:
        """Whether sessions start by a schedule of their own, whatever the server does."""
        ...

    def wait(self, elapsed_s: float, started: int, finished: int) -> float | None:
        """Seconds from `elapsed_s` until session number `started` (from 0) is due.

        A value of 0 or less means that it is due, or was due that long ago; infinity that it never is. None
        means that it waits for one of the sessions in flight to finish. All times count from the start of the
        run.
        """
        ...


_KINDS: dict[str, Callable[..., ArrivalProcess]] = {
    "closed": Closed,
    "constant": Constant,
    "gamma": Gamma,
    "poisson": Poisson,
    "ramp": Ramp,
    "steps": Steps,
    "trace": Trace,
}
NAMES = tuple(_KINDS)


def arrival_process(name: str, **settings: Any) -> ArrivalProcess:
    """The process called `name`; settings are its own, made by `LoadOptions.arrival` and checked before."""
    if name not in _KINDS:
        raise ValueError(f"Unknown arrival process {name!r}; there are {', '.join(NAMES)}.")
    return _KINDS[name](**settings)
