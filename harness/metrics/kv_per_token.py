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
from harness.metrics.latency import event_gaps, measured
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
    gaps = event_gaps(measured(events))["gap_ms"]
    calm_ns = _CALM_GAPS * float(gaps.median()) * 1e6 if len(gaps) else 0.0
    sent, first, last, ended = (
        rows[name].to_numpy(dtype=float, na_value=np.nan)
        for name in ("sent_ns", "first_ns", "last_ns", "end_ns")
    )
    prompts = rows["prompt_tokens"].to_numpy(dtype=float)
    streams = _Streams(rows, events)
    found = []
    samples = telemetry[window.holds(telemetry["ns"]) & telemetry[KV_USED_BYTES].notna()]
    samples = samples[_only_generating(samples["ns"].to_numpy(), calm_ns, sent, first, last, ended)]
    for ns, used in zip(samples["ns"].tolist(), samples[KV_USED_BYTES].tolist(), strict=True):
        there = (sent <= ns + calm_ns) & ~(ended < ns - calm_ns)
        tokens = float(prompts[there].sum()) + sum(
            streams.tokens(place, ns) for place in np.flatnonzero(there)
        )
        found.append((ns, int(there.sum()), tokens, float(used)))
    return pd.DataFrame(found, columns=columns)


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


class _Streams:
    """How many tokens each request had been sent by an instant."""

    def __init__(self, requests: pd.DataFrame, events: pd.DataFrame) -> None:
        key = _key(events)
        order = np.lexsort((events["ns"].to_numpy(), key))
        self._ns = events["ns"].to_numpy()[order]
        self._tokens = np.concatenate([[0], events["tokens"].to_numpy()[order].cumsum()])
        wanted = _key(requests)
        self._starts, self._ends = (np.searchsorted(key[order], wanted, side) for side in ("left", "right"))

    def tokens(self, place: "np.intp", ns: int) -> float:
        """place: of the request among the rows."""
        start, end = self._starts[place], self._ends[place]
        by_then = start + np.searchsorted(self._ns[start:end], ns, side="right")
        return float(self._tokens[by_then] - self._tokens[start])


def _key(rows: pd.DataFrame) -> np.ndarray:
    """One number for phase and index."""
    measured_ones = (rows["phase"] == "measured").to_numpy(dtype=np.int64, na_value=0)
    return (measured_ones << 40) + rows["index"].to_numpy(dtype=np.int64)
