"""The share of the cost that a setting saves against another: 1 − cost / cost of the other."""

from collections.abc import Sequence
from dataclasses import dataclass

from harness.compare.statistics import FEWEST_RUNS, ratio_of_medians


@dataclass(frozen=True, slots=True)
class Saving:
    """share: of 1, negative where it costs more. low and high: a 95 % interval from 5 runs a side on, with fewer the
    range over all pairs of runs; None for one run a side.
    """

    share: float
    low: float | None
    high: float | None
    runs: int

    @property
    def interval(self) -> str:
        """What low and high are, in words."""
        return (
            "" if self.low is None else "95 % interval" if self.runs >= FEWEST_RUNS else "range over the runs"
        )


def saving(plain: Sequence[float], ours: Sequence[float]) -> Saving | None:
    """Costs of the runs of either side, above 0; None where a side has none. An interval of few runs by bootstrap is
    far too narrow, which is why their whole range stands instead.
    """
    if not plain or not ours:
        return None
    fewest = min(len(plain), len(ours))
    ratio = ratio_of_medians([[cost] for cost in plain], [[cost] for cost in ours])
    if fewest >= FEWEST_RUNS and ratio.low is not None and ratio.high is not None:
        return Saving(1 - ratio.value, 1 - ratio.high, 1 - ratio.low, fewest)
    if len(plain) == len(ours) == 1:
        return Saving(1 - ratio.value, None, None, 1)
    return Saving(1 - ratio.value, 1 - max(ours) / min(plain), 1 - min(ours) / max(plain), fewest)
