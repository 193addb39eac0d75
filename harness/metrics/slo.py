"""Limits that a request must keep for its user to be content, and how many requests kept them."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
from omegaconf import MISSING

from harness.metrics.latency import latencies


@dataclass
class SloOptions:
    """Limits for a single request, in milliseconds; null means no limit. Values come from conf/slo/*.yaml.

    ttft_ms is counted from the schedule: what a user waits. tpot_ms and e2e_ms as in docs/metrics.md.
    """

    name: str = MISSING
    ttft_ms: float | None = MISSING
    tpot_ms: float | None = MISSING
    e2e_ms: float | None = MISSING


def limits_of(slo: SloOptions | None) -> dict[str, float]:
    """The limits that are set, by latency name."""
    if slo is None:
        return {}
    limits = {"ttft_ms": slo.ttft_ms, "tpot_ms": slo.tpot_ms, "e2e_ms": slo.e2e_ms}
    return {name: limit for name, limit in limits.items() if limit is not None}


def meets(requests: pd.DataFrame, slo: SloOptions) -> npt.NDArray[np.bool_]:
    """Which requests kept every limit, as a mask. A failed or timed-out request kept none.

    A request of one token has no TPOT and cannot miss that limit.
    """
    kept = requests["ok"].to_numpy(dtype=bool, na_value=False).copy()
    values = latencies(requests)
    for name, limit in limits_of(slo).items():
        column = values[name].to_numpy()
        within = column <= limit
        kept &= (within | np.isnan(column)) if name == "tpot_ms" else within
    return kept
