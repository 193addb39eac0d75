"""How fast the machine itself was: a fixed piece of work, timed before and after a run, and what changed between.

An engine that got slower and a machine that got slower look alike in every figure of a run; this tells them apart.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Pace:
    """One look. ns: CLOCK_MONOTONIC when it began.

    arithmetic_ms: of a fixed number of hashes computed in registers, so that the clock of a core and whoever shares
    it show. copying_ms: of each core's share of a buffer copied. Both are medians over rounds and cores. cores: at
    work at once; looks at others are not comparable. () in a record that does not tell them.
    """

    ns: int
    arithmetic_ms: float
    copying_ms: float
    cores: tuple[int, ...] = ()

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Self:
        """As run.json holds it, where cores are a list."""
        return cls(**{**record, "cores": tuple(record.get("cores") or ())})

    def to_record(self) -> dict[str, Any]:
        """As run.json holds it."""
        return asdict(self)


def slower(before: Pace, after: Pace) -> float:
    """How many times longer the work took after: of its two parts, that which changed more; below 1 if faster."""
    ratios = (after.arithmetic_ms / before.arithmetic_ms, after.copying_ms / before.copying_ms)
    return max(ratios, key=lambda ratio: abs(math.log(ratio)))


def drifted(before: Pace, after: Pace) -> float:
    """The same whichever way the machine changed: at least 1."""
    ratio = slower(before, after)
    return max(ratio, 1 / ratio)
