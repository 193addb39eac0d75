"""Memory, CPU, prefix cache and energy over the measured window, from telemetry samples.

A figure whose samples are missing is None, never 0.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from harness.core.metric_names import (
    KV_RESERVED_BYTES,
    KV_USED_BYTES,
    PREFIX_HIT_TOKENS,
    PREFIX_QUERY_TOKENS,
    REQUESTS_RUNNING,
    WEIGHTS_BYTES,
)
from harness.core.weight_files import SAID
from harness.metrics.window import NS_PER_S, Window

Values = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Held:
    """What is known of an engine's memory beside its samples.

    kv_pool_touched: as the engine's capabilities say it. weights_bytes, weights_source: as
    `harness.core.weight_files.WeightSize` has them. prefix_cache: whether requests may share entries of the KV cache.
    """

    kv_pool_touched: bool | None = None
    weights_bytes: float | None = None
    weights_source: str | None = None
    prefix_cache: bool = False


UNKNOWN = Held()
# Whether the pool is touched -> what of the KV cache is in the peak, and its key.
_KV_IN_PEAK: dict[bool | None, tuple[str, str]] = {
    True: ("reserved", "kv_reserved_bytes"),
    False: ("used", "kv_used_max_bytes"),
}


def memory_summary(telemetry: pd.DataFrame, window: Window, held: Held = UNKNOWN) -> dict[str, Any]:
    """Bytes, each kind named apart (docs/metrics.md), over the samples inside the window; `samples` counts
    them.

    kv_per_request_bytes: mean of KV used / running requests over the samples in which any request ran.
    overhead_bytes: what of the peak is neither weights nor KV cache, of which `kv_in_peak` says what was taken.
    """
    rows = telemetry[window.holds(telemetry["ns"])]
    used, running = column(rows, KV_USED_BYTES), column(rows, REQUESTS_RUNNING)
    with np.errstate(divide="ignore", invalid="ignore"):
        per_request = np.where(running > 0, used / running, np.nan)
    pss = column(rows, "pss_bytes")
    figures = {
        "peak_process_bytes": _reduce(np.max, pss),
        "peak_gpu_bytes": _reduce(np.max, column(rows, "gpu_bytes")),
        "kv_reserved_bytes": _reduce(np.max, column(rows, KV_RESERVED_BYTES)),
        "kv_used_max_bytes": _reduce(np.max, used),
        "kv_used_mean_bytes": _reduce(np.mean, used),
        "kv_per_request_bytes": _reduce(np.mean, per_request),
        "samples": int((~np.isnan(pss)).sum()),
    }
    said = _reduce(np.max, column(rows, WEIGHTS_BYTES))
    if said is not None:
        held = replace(held, weights_bytes=said, weights_source=SAID)
    return figures | _shares(figures, held)


def _shares(figures: Mapping[str, Any], held: Held) -> dict[str, Any]:
    """What the peak consists of: weights, KV cache, and the rest.

    The peak is the GPU's where the engine holds memory of one, else that of its processes. The KV cache in it is the
    pool where that is memory from the start; elsewhere the most that was used, and pages that were used once and are
    free again are in the overhead.
    """
    peak = figures["peak_gpu_bytes"] or figures["peak_process_bytes"]
    in_peak, key = _KV_IN_PEAK.get(held.kv_pool_touched, (None, ""))
    kv = figures.get(key)
    weights = held.weights_bytes
    known = peak is not None and kv is not None
    return {
        "weights_bytes": weights,
        "weights_source": held.weights_source if weights is not None else None,
        "kv_in_peak": in_peak if kv is not None else None,
        "overhead_bytes": peak - weights - kv if known and weights is not None else None,
        "kv_share_of_memory": kv / peak if known and peak else None,
    }


def prefix_cache_summary(telemetry: pd.DataFrame, window: Window) -> dict[str, Any]:
    """Prompt tokens looked up and found while the window was open, and their ratio."""
    queried = grown(telemetry, PREFIX_QUERY_TOKENS, window)
    found = grown(telemetry, PREFIX_HIT_TOKENS, window)
    rate = found / queried if queried and found is not None else None
    return {"query_tokens": queried, "hit_tokens": found, "hit_rate": rate}


def engine_cores(telemetry: pd.DataFrame, window: Window) -> float | None:
    """CPU cores that the engine kept busy, on average over the window's samples."""
    rows = telemetry[window.holds(telemetry["ns"])].dropna(subset=["engine_cpu_s"])
    seconds = (rows["ns"].max() - rows["ns"].min()) / NS_PER_S if len(rows) > 1 else 0
    if seconds <= 0:
        return None
    return float((rows["engine_cpu_s"].iloc[-1] - rows["engine_cpu_s"].iloc[0]) / seconds)


def energy_summary(telemetry: pd.DataFrame, window: Window, tokens: float) -> dict[str, Any]:
    """Joules over the window and per output token; {} where the machine does not let energy be read."""
    joules = grown(telemetry, "energy_j", window)
    if joules is None:
        return {}
    return {"joules": joules, "joules_per_output_token": joules / tokens if tokens else None}


def column(telemetry: pd.DataFrame, name: str) -> Values:
    """A column as floats, NaN where a sample or the whole column is missing."""
    if name not in telemetry:
        return np.full(len(telemetry), np.nan)
    return telemetry[name].to_numpy(dtype=float, na_value=np.nan)


def grown(telemetry: pd.DataFrame, name: str, window: Window) -> float | None:
    """How much a counter grew: last sample up to the window's end less the last one up to its start.

    Where sampling began after the window opened, its first sample is taken instead. None without two samples.
    """
    if name not in telemetry:
        return None
    rows = telemetry.loc[telemetry["ns"] <= window.end_ns, ["ns", name]].dropna()
    if len(rows) < 2:
        return None
    before = rows.loc[rows["ns"] <= window.start_ns, name]
    start = before.iloc[-1] if len(before) else rows[name].iloc[0]
    return float(rows[name].iloc[-1] - start)


def _reduce(function: Any, values: Values) -> float | None:
    known = values[~np.isnan(values)]
    return float(function(known)) if len(known) else None
