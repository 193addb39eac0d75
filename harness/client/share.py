"""One worker's part of a load: of N workers number k takes every N-th session, and its part of the slots."""

from dataclasses import dataclass

from harness.load.arrivals import ArrivalProcess


@dataclass(frozen=True, slots=True)
class Share:
    """Worker number `worker` (from 0) of `of`. All shares together are the whole process, session by session.

    In an open loop its session n is the whole's session `worker` + n · `of`, due at that one's instant. In a closed
    loop its n-th slot is the whole's slot of that number, so that the slots add up to the concurrency asked for
    and open in the same ramp.
    """

    whole: ArrivalProcess
    worker: int
    of: int

    @property
    def open_loop(self) -> bool:
        """As the whole."""
        return self.whole.open_loop

    def wait(self, elapsed_s: float, started: int, finished: int) -> float | None:
        """As the whole, of this worker's own sessions."""
        if self.whole.open_loop:
            return self.whole.wait(elapsed_s, self.worker + started * self.of, finished)
        return self.whole.wait(elapsed_s, self.worker + (started - finished) * self.of, 0)
