"""All figures of one run, as run.json's `summary` holds them."""

from typing import Any

import numpy as np
import pandas as pd

from harness.metrics.kv_per_token import kv_per_token
from harness.metrics.latency import event_gaps, is_measured, latencies, succeeded
from harness.metrics.percentiles import describe
from harness.metrics.resources import (
    UNKNOWN,
    Held,
    energy_summary,
    engine_cores,
    memory_summary,
    prefix_cache_summary,
)
from harness.metrics.slo import SloOptions, judge_percentiles
from harness.metrics.throughput import goodput, output_tokens_per_s, requests_per_s, steady_tokens_per_s
from harness.metrics.window import Window

_DESCRIBED = ("ttft_ms", "ttft_from_send_ms", "tpot_ms", "e2e_ms", "e2e_from_send_ms", "schedule_lag_ms")


def summarise(
    requests: pd.DataFrame,
    events: pd.DataFrame,
    telemetry: pd.DataFrame,
    window: Window,
    slo: SloOptions | None,
    held: Held = UNKNOWN,
) -> dict[str, Any]:
    """Every figure of the run; frames are those of harness.records.schema, warm-up rows are ignored.

    Keys are always all there; a figure that cannot be had is None. `quality` is left empty for those who
    judge it.
    """
    scheduled = window.requests(requests)
    values = latencies(scheduled)
    summary: dict[str, Any] = {name: describe(values[name].to_numpy()) for name in _DESCRIBED}
    summary["itl_ms"] = describe(gaps_in_window(requests, events, window))
    summary["output_tokens_per_s"] = output_tokens_per_s(events, window)
    summary["steady_output_tokens_per_s"] = steady_tokens_per_s(requests, events, window)
    summary["requests_per_s"] = requests_per_s(requests, window)
    summary.update(goodput(requests, window, slo))
    summary["slo_percentiles"] = judge_percentiles(scheduled, slo)
    summary["requests"] = count_requests(scheduled)
    summary["sessions"] = int(scheduled["session"].nunique())
    token = kv_per_token(requests, events, telemetry, window, held.prefix_cache)
    summary["memory"] = memory_summary(telemetry, window, held) | {
        "kv_per_token_bytes": token.bytes.value if token.bytes else None,
        "kv_per_token_interval": [token.bytes.low, token.bytes.high] if token.bytes else None,
        "kv_per_token_why": token.why,
    }
    summary["prefix_cache"] = prefix_cache_summary(telemetry, window)
    summary["engine_cores"] = engine_cores(telemetry, window)
    tokens = (summary["output_tokens_per_s"] or 0.0) * window.seconds
    summary["energy"] = energy_summary(telemetry, window, tokens)
    summary["quality"] = {}
    return summary


def count_requests(scheduled: pd.DataFrame) -> dict[str, Any]:
    """`ok`, `errors` by kind (the most frequent first), and `retried`: requests sent again after an error."""
    ok = succeeded(scheduled)
    kinds = scheduled.loc[~ok, "error"].fillna("unknown").value_counts()
    errors = {str(kind): int(count) for kind, count in kinds.items()}
    return {"ok": int(ok.sum()), "errors": errors, "retried": int(retried(scheduled).sum())}


def retried(requests: pd.DataFrame) -> "pd.Series[bool]":
    """Which rows were sent more than once; none in a record older than the column."""
    if "retries" not in requests:
        return pd.Series(False, index=requests.index)
    return requests["retries"].fillna(0) > 0


def gaps_in_window(requests: pd.DataFrame, events: pd.DataFrame, window: Window) -> np.ndarray:
    """Event gaps, ms, of successful requests scheduled inside the window."""
    scheduled = window.requests(requests[["phase", "index", "ok", "scheduled_ns"]])
    counted = scheduled.loc[succeeded(scheduled), "index"]
    index, ns = events["index"].to_numpy(), events["ns"].to_numpy()
    rows = is_measured(events) & np.isin(index, counted)
    return event_gaps(index[rows], ns[rows])
