"""What a token costs in KV cache, told from a run's own samples.

While nobody's prompt is being read, the tokens that every running request holds are known: its prompt and what it was
sent so far. Over those samples KV used is fitted as (requests · a + tokens · b). What does not depend on the length
goes into a; b is bytes per token, scales of quantised caches included. No request is sent for it.

An engine takes memory by blocks, and how much of the last one is empty is no chance that a fit averages out: prompts
of 256 tokens and a few more all take three blocks of 128. Where it tells the size of its blocks, tokens are therefore
those that a request's blocks have room for, and rounding cancels, but for a sample taken while a request goes on to
its next block; where it does not, a takes its average.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from harness.core.metric_names import KV_BLOCK_TOKENS, KV_USED_BYTES, PREFIX_HIT_TOKENS
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
    requests: pd.DataFrame,
    events: pd.DataFrame,
    telemetry: pd.DataFrame,
    window: Window,
    prefix_cache: bool = False,
) -> KvPerToken:
    """From one run; frames are those of harness.records.schema.

    prefix_cache: whether requests may share entries without a word of it, since the engine counts no hits.
    """
    if _shared(requests, telemetry):
        return KvPerToken(None, "requests shared entries of the prefix cache")
    if prefix_cache and not _counts_hits(telemetry):
        return KvPerToken(
            None, "requests may share entries of the prefix cache, and the engine counts no hits"
        )
    return fitted(held_tokens(requests, events, telemetry, window))


def fitted(held: pd.DataFrame) -> KvPerToken:
    """From rows of `held_tokens`, of one run or of several with the same KV setting.

    Where some of these runs tell the size of a block and older records do not, those that tell it are taken.
    """
    if (held["block"] > 1).any():
        held = held[held["block"] > 1]
    if held.empty or held[KV_USED_BYTES].isna().all():
        return KvPerToken(None, "no sample of KV used in which all requests only generated")
    if len(held) < FEWEST_SAMPLES:
        return KvPerToken(None, f"only {len(held)} samples in which all requests only generated")
    found = least_squares([held["requests"].tolist(), held["room"].tolist()], held[KV_USED_BYTES].tolist())
    if found is None:
        return KvPerToken(None, "the requests held the same number of tokens, or of blocks, in every sample")
    slope = found[1]
    if slope.half_width > WIDEST * abs(slope.value):
        return KvPerToken(None, "the lengths of the requests differ too little to tell")
    return KvPerToken(slope)


def held_tokens(
    requests: pd.DataFrame, events: pd.DataFrame, telemetry: pd.DataFrame, window: Window
) -> pd.DataFrame:
    """A row for each sample of the window at which `requests` > 0 requests held `tokens`, known to the last few.

    Columns ns, requests, tokens, block (tokens of one; 1 where the engine does not tell), room (tokens that the
    blocks of these requests have room for) and KV_USED_BYTES. Empty where the engine does not tell KV used, and where
    its prefix cache found something: requests that share entries do not add up.
    """
    rows = requests[requests["sent_ns"].notna()]
    columns = ["ns", "requests", "tokens", "block", "room", KV_USED_BYTES]
    if KV_USED_BYTES not in telemetry or rows.empty or _shared(rows, telemetry):
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
    owner, arrived = owner[known], np.maximum(ns, begin[owner])[known]
    prompts, sizes = (
        rows["prompt_tokens"].to_numpy(dtype=float),
        events["tokens"].to_numpy(dtype=float)[known],
    )

    def added(first: np.ndarray, further: np.ndarray) -> np.ndarray:
        return _sum_at(instants, begin, end, first) + _sum_at(instants, arrived, end[owner], further)

    tokens = added(prompts, sizes)
    block = _block_tokens(telemetry)
    room = tokens if block == 1 else added(*_in_blocks(prompts, sizes, owner, arrived, block))
    count = _sum_at(instants, begin, end, np.ones(len(rows)))
    used = samples[KV_USED_BYTES].to_numpy(dtype=float)
    blocks = np.full(len(instants), block)
    found = (instants, count.astype(int), tokens, blocks, room, used)
    return pd.DataFrame(dict(zip(columns, found, strict=True)))


def _shared(rows: pd.DataFrame, telemetry: pd.DataFrame) -> bool:
    """Whether the prefix cache found something, by the requests or by the engine's own counter."""
    if (rows["cached_tokens"].fillna(0) > 0).any():
        return True
    if not _counts_hits(telemetry):
        return False
    hits = telemetry[PREFIX_HIT_TOKENS]
    return bool(hits.max() > hits.min())


def _counts_hits(telemetry: pd.DataFrame) -> bool:
    return PREFIX_HIT_TOKENS in telemetry and bool(telemetry[PREFIX_HIT_TOKENS].notna().any())


def _block_tokens(telemetry: pd.DataFrame) -> float:
    """Tokens of a block of this engine's KV cache; 1 where it does not tell."""
    if KV_BLOCK_TOKENS not in telemetry:
        return 1.0
    told = telemetry[KV_BLOCK_TOKENS].dropna()
    return max(1.0, float(told.iloc[-1])) if len(told) else 1.0


def _in_blocks(
    prompts: np.ndarray, sizes: np.ndarray, owner: np.ndarray, arrived: np.ndarray, block: float
) -> tuple[np.ndarray, np.ndarray]:
    """Room that each prompt takes in whole blocks, and what each event adds to that of its request.

    prompts: tokens by request. sizes, owner, arrived: of each event its tokens, its request and its instant.
    """
    order = np.lexsort((arrived, owner))
    whose, total = owner[order], np.cumsum(sizes[order])
    begins = np.flatnonzero(np.diff(whose, prepend=-1))  # of each request's first event
    before = total[begins] - sizes[order][begins]
    held = prompts[whose] + total - np.repeat(before, np.diff(begins, append=len(whose)))
    room, first = np.ceil(held / block) * block, np.ceil(prompts / block) * block
    grown = np.diff(room, prepend=0.0)
    grown[begins] = room[begins] - first[whose[begins]]
    further = np.empty_like(grown)
    further[order] = grown
    return first, further


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
