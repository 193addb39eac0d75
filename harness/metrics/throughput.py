"""Rates over the measured window, and how they run over time."""

from typing import Any

import numpy as np
import pandas as pd

from harness.metrics.latency import is_measured, measured, succeeded
from harness.metrics.slo import SloOptions, limits_of, meets
from harness.metrics.window import NS_PER_S, Window, in_flight, steady_intervals


def output_tokens_per_s(events: pd.DataFrame, window: Window) -> float | None:
    """Tokens that arrived inside the window, whatever request they belong to, per second of it."""
    if window.seconds <= 0:
        return None
    rows = measured(events)
    return float(rows.loc[window.holds(rows["ns"]), "tokens"].sum() / window.seconds)


def steady_tokens_per_s(requests: pd.DataFrame, events: pd.DataFrame, window: Window) -> float | None:
    """Token rate over the steady part of the window; None where there is no such part."""
    intervals = steady_intervals(requests, window)
    seconds = sum(end - start for start, end in intervals) / NS_PER_S
    if seconds <= 0:
        return None
    rows = measured(events)
    ns, tokens = rows["ns"].to_numpy(), rows["tokens"].to_numpy()
    arrived = sum(tokens[(ns >= start) & (ns < end)].sum() for start, end in intervals)
    return float(arrived / seconds)


def requests_per_s(requests: pd.DataFrame, window: Window) -> float | None:
    """Successful requests that ended inside the window, per second of it."""
    return None if window.seconds <= 0 else float(_finished(requests, window).sum() / window.seconds)


def goodput(requests: pd.DataFrame, window: Window, slo: SloOptions | None) -> dict[str, Any]:
    """`goodput_per_s` (finished inside the window and within every limit) and `slo_attainment`.

    Attainment is a share of the requests scheduled inside the window; failed ones are misses. Both are None
    where no limit is set.
    """
    if slo is None or not limits_of(slo) or window.seconds <= 0:
        return {"goodput_per_s": None, "slo_attainment": None}
    rows = measured(requests)
    good = meets(rows, slo) & _finished(requests, window)
    scheduled = window.requests(requests)
    return {
        "goodput_per_s": float(good.sum() / window.seconds),
        "slo_attainment": float(meets(scheduled, slo).mean()) if len(scheduled) else None,
    }


def _finished(requests: pd.DataFrame, window: Window) -> np.ndarray:
    rows = measured(requests)
    return succeeded(rows) & window.holds(rows["end_ns"])


def concurrency(requests: pd.DataFrame) -> pd.DataFrame:
    """Measured requests in flight, from `sent` to `end`: columns `ns` (instant of change) and `requests`."""
    rows = measured(requests[["phase", "sent_ns", "end_ns"]]).dropna()
    instants, counts = in_flight(
        rows["sent_ns"].to_numpy(dtype="int64"), rows["end_ns"].to_numpy(dtype="int64")
    )
    return pd.DataFrame({"ns": instants, "requests": counts})


def tokens_over_time(events: pd.DataFrame, window: Window, bins: int) -> pd.DataFrame:
    """Token rate in `bins` equal parts of the window: columns `ns` (its start) and `tokens_per_s`."""
    rows = is_measured(events)
    tokens, edges = np.histogram(
        events["ns"].to_numpy()[rows],
        bins=bins,
        range=(window.start_ns, window.end_ns),
        weights=events["tokens"].to_numpy()[rows],
    )
    width = window.seconds / bins
    rates = tokens / width if width > 0 else np.zeros(bins)
    return pd.DataFrame({"ns": edges[:-1].astype("int64"), "tokens_per_s": rates})
