"""What a token costs in KV cache, told from a run's own samples.

While nobody's prompt is being read, the tokens that every running request holds are known: its prompt and what it was
sent so far. Over those samples KV used is fitted as (requests · a + tokens · b). What does not depend on the length,
rounding up to blocks above all, goes into a; b is bytes per token, scales of quantised caches included. No request is
sent for it.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from harness.core.metric_names import KV_USED_BYTES
from harness.metrics.latency import event_gaps, is_measured, request_keys
from harness.metrics.scaling import Estimate, least_squares
from harness.metrics.window import Window

FEWEST_SAMPLES = 5
WIDEST = 0.1  # half the interval, as a share of the figure: beyond it a run does not tell
_CALM_GAPS = (
    2.0  # event gaps around a sample in which nobody may begin or end: a gauge tells of the last step
)


@dataclass(frozen=True, slots=True)
class KvPerToken:
    """bytes is None where `why` says the reason."""

    bytes: Estimate | None
    why: str | None = None


def kv_per_token(
    requests: pd.DataFrame, events: pd.DataFrame, telemetry: pd.DataFrame, window: Window
) -> KvPerToken:
    """From one run; frames are those of harness.records.schema."""
    return fitted(held_tokens(requests, events, telemetry, window))


def fitted(held: pd.DataFrame) -> KvPerToken:
    """From rows of `held_tokens`, of one run or of several with the same KV setting."""
    if held.empty or held[KV_USED_BYTES].isna().all():
        return KvPerToken(None, "no sample of KV used in which all requests only generated")
    if len(held) < FEWEST_SAMPLES:
        return KvPerToken(None, f"only {len(held)} samples in which all requests only generated")
    found = least_squares([held["requests"].tolist(), held["tokens"].tolist()], held[KV_USED_BYTES].tolist())
    if found is None:
        return KvPerToken(None, "the requests held the same number of tokens in every sample")
    slope = found[1]
    if slope.half_width > WIDEST * abs(slope.value):
        return KvPerToken(None, "the lengths of the requests differ too little to tell")
    return KvPerToken(slope)


def held_tokens(
    requests: pd.DataFrame, events: pd.DataFrame, telemetry: pd.DataFrame, window: Window
) -> pd.DataFrame:
    """A row for each sample of the window at which `requests` > 0 requests held `tokens`, known to the last few.

    Columns ns, requests, tokens and KV_USED_BYTES. Empty where the engine does not tell KV used, and where its prefix
    cache found something: requests that share entries do not add up.
    """
    rows = requests[requests["sent_ns"].notna()]
    columns = ["ns", "requests", "tokens", KV_USED_BYTES]
    if KV_USED_BYTES not in telemetry or rows.empty or (rows["cached_tokens"].fillna(0) > 0).any():
        return pd.DataFrame(columns=columns)
    key, ns = request_keys(events), events["ns"].to_numpy()
    counted = is_measured(events)
    gaps = event_gaps(key[counted], ns[counted])
    calm_ns = _CALM_GAPS * float(np.median(gaps)) * 1e6 if len(gaps) else 0.0
    sent, first, last, ended = (
        rows[name].to_numpy(dtype=float, na_value=np.nan)
        for name in ("sent_ns", "first_ns", "last_ns", "end_ns")
    )
    samples = telemetry[window.holds(telemetry["ns"]) & telemetry[KV_USED_BYTES].notna()]
    samples = samples[_only_generating(samples["ns"].to_numpy(), calm_ns, sent, first, last, ended)]
    samples = samples.sort_values("ns", kind="stable")
    instants = samples["ns"].to_numpy(dtype=np.int64)
    begin, end = sent - calm_ns, np.where(np.isnan(ended), np.inf, ended + calm_ns)
    owner = pd.Index(request_keys(rows)).get_indexer(key)
    known = owner >= 0
    arrived = np.maximum(ns, begin[owner])[known]
    tokens = _sum_at(instants, begin, end, rows["prompt_tokens"].to_numpy(dtype=float))
    tokens += _sum_at(instants, arrived, end[owner][known], events["tokens"].to_numpy(dtype=float)[known])
    count = _sum_at(instants, begin, end, np.ones(len(rows)))
    found = (instants, count.astype(int), tokens, samples[KV_USED_BYTES].to_numpy(dtype=float))
    return pd.DataFrame(dict(zip(columns, found, strict=True)))


def _only_generating(
    instants: np.ndarray,
    calm_ns: float,
    sent: np.ndarray,
    first: np.ndarray,
    last: np.ndarray,
    ended: np.ndarray,
) -> np.ndarray:
    """Where somebody is there and everybody who is generates, by counting those who began and ended before.

    Whoever generates is there, so equal numbers mean the same requests. An instant that never came is NaN.
    """
    there = _by(sent, instants + calm_ns) - _before(ended, instants - calm_ns)
    calm = last - first > 2 * calm_ns  # the others never generate for long enough
    generating = _before(first[calm] + calm_ns, instants) - _by(last[calm] - calm_ns, instants)
    return (there > 0) & (there == generating)


def _by(events_ns: np.ndarray, instants: np.ndarray) -> np.ndarray:
    return _counted(events_ns, instants, "right")


def _before(events_ns: np.ndarray, instants: np.ndarray) -> np.ndarray:
    return _counted(events_ns, instants, "left")


def _counted(events_ns: np.ndarray, instants: np.ndarray, side: Literal["left", "right"]) -> np.ndarray:
    """Of the events that came at all, how many by each instant (right) or before it (left)."""
    return np.searchsorted(np.sort(events_ns[~np.isnan(events_ns)]), instants, side=side)


def _sum_at(instants: np.ndarray, begin: np.ndarray, end: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Sum of the weights whose interval from begin to end, both included, holds each instant.

    instants: ascending. Each interval is counted from its first instant on and no more from the first one after it.
    """
    first = np.searchsorted(instants, begin, side="left")
    after = np.maximum(first, np.searchsorted(instants, end, side="right"))
    come, gone = (np.bincount(places, weights, minlength=len(instants) + 1) for places in (first, after))
    return np.cumsum(come - gone)[:-1]
