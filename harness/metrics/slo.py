"""Limits for a user to be content: of a single request, and of a percentile over a run."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from omegaconf import MISSING

from harness.metrics.latency import latencies, succeeded
from harness.metrics.percentiles import SHOWN, fewest_for_a_verdict


@dataclass
class SloOptions:
    """Limits in milliseconds; null means no limit. Values come from conf/slo/*.yaml.

    ttft_ms, tpot_ms, e2e_ms: every request should keep them; goodput counts those that do. TTFT is counted from
        the schedule: what a user waits.
    ttft_p99_ms and the like: the run's percentile should keep them.
    """

    name: str = MISSING
    ttft_ms: float | None = MISSING
    tpot_ms: float | None = MISSING
    e2e_ms: float | None = MISSING
    ttft_p50_ms: float | None = MISSING
    ttft_p90_ms: float | None = MISSING
    ttft_p95_ms: float | None = MISSING
    ttft_p99_ms: float | None = MISSING
    tpot_p50_ms: float | None = MISSING
    tpot_p90_ms: float | None = MISSING
    tpot_p95_ms: float | None = MISSING
    tpot_p99_ms: float | None = MISSING
    e2e_p50_ms: float | None = MISSING
    e2e_p90_ms: float | None = MISSING
    e2e_p95_ms: float | None = MISSING
    e2e_p99_ms: float | None = MISSING


# A limit of a percentile: its key, the latency, the percentile.
PERCENTILE_LIMITS = {
    f"{latency}_{name}_ms": (f"{latency}_ms", q)
    for latency in ("ttft", "tpot", "e2e")
    for name, q in SHOWN.items()
}


def limits_of(slo: SloOptions | None) -> dict[str, float]:
    """The limits of a single request that are set, by latency name."""
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


def percentile_limits_of(slo: SloOptions | None) -> dict[str, float]:
    """The limits of percentiles that are set, by their keys (`ttft_p99_ms`)."""
    if slo is None:
        return {}
    limits = {key: getattr(slo, key) for key in PERCENTILE_LIMITS}
    return {key: limit for key, limit in limits.items() if limit is not None}


def judge_percentiles(requests: pd.DataFrame, slo: SloOptions | None) -> list[dict[str, Any]]:
    """Each limit of a percentile, held against these requests, JSON-ready.

    Keys: `key`, `limit_ms`, `value_ms` (None where the percentile falls on a failed request, or there is none),
    `samples`, `met`, and `enough`: whether there are samples enough for a verdict. A failed request counts as
    infinitely slow, since giving up must not make a server look fast. A success without TPOT (of one token) is
    left out of it; where there is nothing else, the limit is met.
    """
    values = latencies(requests)
    failed = int((~succeeded(requests)).sum())
    judged = []
    for key, limit in percentile_limits_of(slo).items():
        latency, q = PERCENTILE_LIMITS[key]
        known = values[latency].dropna().to_numpy(dtype=float)
        value = _percentile_with_failures(np.sort(known), failed, q)
        samples = len(known) + failed
        judged.append(
            {
                "key": key,
                "limit_ms": limit,
                "value_ms": value,
                "samples": samples,
                "enough": samples >= fewest_for_a_verdict(q),
                "met": value <= limit if value is not None else not samples and len(requests) > 0,
            }
        )
    return judged


def _percentile_with_failures(known: npt.NDArray[np.float64], failed: int, q: float) -> float | None:
    """Linear interpolation between order statistics, the failed ones being beyond all others."""
    position = (len(known) + failed - 1) * q / 100
    lower, share = math.floor(position), position - math.floor(position)
    upper = lower + (1 if share else 0)
    if not len(known) or upper >= len(known):
        return None
    return float(known[lower] + share * (known[upper] - known[lower]))
