"""Whether a server falls behind the load it is offered, while it runs: from requests in flight and Little's law.

A server that keeps up has rate × time-in-system requests in flight, however long it runs; one that does not has
ever more. The time in system is known from the last probe that met, so the number that a sound probe would have at
another rate is known too; several times as many is running away. Growth alone says less: a run that fills up grows
in the same way. Requests that a bound (`load.concurrency`) holds back in the client are in the system as well: a user
waits for them.
"""

import math
from dataclasses import dataclass

from harness.client import Progress

_TIMES_EXPECTED = 4.0
_FEWEST = 32  # below, bursts of random arrivals can be so many


def expected_in_flight(requests_per_s: float, e2e_ms: float, value: float, at: float) -> float:
    """Requests in flight at `value`, if they took as long as they did at `at` (Little: L = λ W)."""
    return requests_per_s * e2e_ms / 1e3 * value / at


@dataclass(slots=True)
class Saturation:
    """Looks at the progress of one probe.

    most_in_flight: more than that is over-saturated in any case. expected: requests in flight that a sound probe
    would have, None where that is not known. reason: why the probe was found over-saturated.
    """

    most_in_flight: int
    expected: float | None = None
    reason: str | None = None

    def look(self, progress: Progress) -> bool:
        """Whether the probe is over-saturated; once it is, it stays so."""
        now = progress.in_flight + progress.waiting
        held = f" ({progress.waiting} of them held back by load.concurrency)" if progress.waiting else ""
        told = f"{now} requests in flight{held} after {progress.elapsed_s:.1f} s"
        if self.reason is None and now > self.most_in_flight:
            self.reason = f"{told}, more than load.most_in_flight={self.most_in_flight}"
        elif self.reason is None and self.expected is not None and now > self._running_away(self.expected):
            self.reason = f"{told}, where {math.ceil(self.expected)} are expected of a server that keeps up"
        return self.reason is not None

    def _running_away(self, expected: float) -> float:
        return max(_FEWEST, _TIMES_EXPECTED * expected)
