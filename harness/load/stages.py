"""Stages of a stepped load as the user writes them: RATExSECONDS."""

import math
from collections.abc import Sequence

from harness.core.errors import UsageError


def parse_stages(stages: Sequence[str]) -> list[tuple[float, float]]:
    """Pairs of (sessions per second, seconds). Raises UsageError that names `load.stages`."""
    parsed = []
    for stage in stages:
        parts = str(stage).lower().replace("×", "x").split("x")
        try:
            rate, seconds = (float(part) for part in parts)
        except ValueError:
            raise _refused(stages, f"{stage!r} is not of the form RATExSECONDS") from None
        if not (0 <= rate < math.inf and 0 < seconds < math.inf):
            raise _refused(stages, f"{stage!r} needs a rate of 0 or more and seconds above 0")
        parsed.append((rate, seconds))
    if not any(rate for rate, _ in parsed):
        raise _refused(stages, "no stage has a rate above 0")
    return parsed


def _refused(stages: Sequence[str], why: str) -> UsageError:
    shown = ",".join(str(stage) for stage in stages)
    return UsageError(f"load.stages=[{shown}]: {why}. For example load.stages=[1x30,4x30]")
