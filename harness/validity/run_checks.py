"""Was the run itself sound from its first request to its last?"""

import numpy as np

from harness.core.metric_names import PREFIX_HIT_TOKENS
from harness.metrics.latency import latencies, measured, succeeded
from harness.metrics.resources import grown
from harness.metrics.throughput import tokens_over_time
from harness.metrics.window import Window, steady_intervals
from harness.validity.check import Check, Evidence, Outcome, not_known

_EVERY_LATENCY = ("ttft_ms", "ttft_from_send_ms", "tpot_ms", "itl_ms", "e2e_ms")
_RATES = ("output_tokens_per_s", "requests_per_s")
_MEMORY = ("memory.peak_process_bytes", "memory.kv_per_request_bytes")
_FEWEST_FOR_CHANGE = 20  # requests, for a rank test between two halves to be able to reach its level
_CHANGE_LEVEL = 0.01
_RATE_PARTS = 20


def _errors(evidence: Evidence, limit: float) -> Outcome:
    rows = evidence.window.requests(evidence.requests)
    if rows.empty:
        return not_known("No request was measured.")
    share = float((~succeeded(rows)).mean())
    return Outcome(share <= limit, share)


def _enough_requests(evidence: Evidence, limit: float) -> Outcome:
    rows = evidence.window.requests(evidence.requests)
    count = int(succeeded(rows).sum())
    return Outcome(count >= limit, float(count))


def _warmup_overlap(evidence: Evidence, limit: float) -> Outcome:
    warmup = evidence.requests[(evidence.requests["phase"] == "warmup").to_numpy(dtype=bool, na_value=False)]
    if warmup.empty:
        return not_known("There was no warm-up.")
    # one that has no end never came back: it may still have been running
    late = warmup["end_ns"].isna() | (warmup["end_ns"].fillna(0) > evidence.window.start_ns)
    return Outcome(int(late.sum()) <= limit, float(late.sum()))


def _warmup_errors(evidence: Evidence, limit: float) -> Outcome:
    warmup = evidence.requests[(evidence.requests["phase"] == "warmup").to_numpy(dtype=bool, na_value=False)]
    if warmup.empty:
        return not_known("There was no warm-up.")
    share = float((~succeeded(warmup)).mean())
    return Outcome(share <= limit, share)


def _foreign_cache_hits(evidence: Evidence, limit: float) -> Outcome:
    rows = measured(evidence.requests)
    if evidence.shareable_prompt_tokens is None:
        return not_known("How much of its prompts the plan shares is not known.")
    if rows["cached_tokens"].notna().any():
        found = float(rows["cached_tokens"].sum())
    else:
        hits = grown(evidence.telemetry, PREFIX_HIT_TOKENS, evidence.window)
        if hits is None:
            return not_known("The engine does not say what its prefix cache found.")
        found = hits
    prompts = float(rows["prompt_tokens"].sum())
    if not prompts:
        return not_known("No request was measured.")
    surplus = max(0.0, found - evidence.shareable_prompt_tokens) / prompts
    return Outcome(surplus <= limit, surplus)


def _steady(evidence: Evidence, limit: float) -> Outcome:
    if not evidence.even_load:
        return not_known("The load changed on purpose.")
    intervals = steady_intervals(evidence.requests, evidence.window)
    rows = evidence.window.requests(evidence.requests)
    if intervals:  # while the slots of a closed loop open one after another, the load grows on purpose
        rows = rows[rows["scheduled_ns"] >= intervals[0][0]]
    ttft = latencies(rows.sort_values("scheduled_ns"))["ttft_ms"].dropna().to_numpy()
    if len(ttft) < _FEWEST_FOR_CHANGE:
        return not_known(f"It takes at least {_FEWEST_FOR_CHANGE} successful requests.")
    steady = Window(intervals[0][0], intervals[-1][1], "steady") if intervals else evidence.window
    rates = tokens_over_time(evidence.events, steady, _RATE_PARTS)["tokens_per_s"].to_numpy()
    change = max(_change(ttft), _change(rates))
    return Outcome(change <= limit, change)


def _change(series: np.ndarray) -> float:
    """How many times the larger half's median is that of the other, 1 where chance explains it.

    Chance: a two-sided Mann-Whitney U test between first and second half at the 1 % level.
    """
    from scipy.stats import mannwhitneyu

    first, second = np.array_split(series, 2)
    if mannwhitneyu(first, second).pvalue >= _CHANGE_LEVEL:
        return 1.0
    low, high = sorted((float(np.median(first)), float(np.median(second))))
    return high / low if low > 0 else float("inf")


def _memory_samples(evidence: Evidence, limit: float) -> Outcome:
    inside = evidence.telemetry[evidence.window.holds(evidence.telemetry["ns"])]
    count = int(inside["pss_bytes"].notna().sum())
    if evidence.engine_alive is None and count == 0:
        return not_known("The server is not the harness's own; its memory cannot be seen from here.")
    return Outcome(count >= limit, float(count))


def _engine_alive(evidence: Evidence, limit: float) -> Outcome:
    if evidence.engine_alive is None:
        return not_known("The server is not the harness's own and was not asked.")
    return Outcome(evidence.engine_alive, float(evidence.engine_alive))


NO_ERRORS = Check(
    name="no_errors",
    title="Every request succeeded",
    problem="requests failed",
    spoils=(*_EVERY_LATENCY, *_RATES),
    limit=0.0,
    unit="of requests failed",
    advice="Read the errors' own words in the report and engine.log; lower the load if they are timeouts.",
    measure=_errors,
)
ENOUGH_REQUESTS = Check(
    name="enough_requests",
    title="Enough requests for these figures",
    problem="too few requests",
    spoils=(*_EVERY_LATENCY, *_RATES),
    limit=10,
    unit="successful requests",
    advice="Measure more: raise workload.requests or load.duration_s.",
    measure=_enough_requests,
)
WARMUP_OVERLAP = Check(
    name="warmup_overlap",
    title="Warm-up had ended before measuring began",
    problem="warm-up still running",
    spoils=(*_EVERY_LATENCY, *_RATES),
    limit=0,
    unit="warm-up requests still running",
    advice="A warm-up request shared the engine with measured ones: lower load.warmup or run it again.",
    measure=_warmup_overlap,
)
WARMUP_ERRORS = Check(
    name="warmup_errors",
    title="Every warm-up request succeeded",
    problem="warm-up failed",
    spoils=_EVERY_LATENCY,
    limit=0.0,
    unit="of warm-up requests failed",
    advice="The engine may have been measured cold: read the warm-up's errors in requests.parquet and engine.log.",
    measure=_warmup_errors,
)
FOREIGN_CACHE_HITS = Check(
    name="foreign_cache_hits",
    title="The prefix cache held nothing from before",
    problem="cache was not empty",
    spoils=("ttft_ms", "ttft_from_send_ms", "e2e_ms"),
    limit=0.01,
    unit="of prompt tokens came from outside the plan",
    advice="The same prompts were asked before (an earlier repeat on a server that kept its cache, or the warm-up): "
    "restart the server before each run, or take another seed for each.",
    measure=_foreign_cache_hits,
)
STEADY_STATE = Check(
    name="steady_state",
    title="First and second half are alike",
    problem="speed drifted",
    spoils=("ttft_ms", "ttft_from_send_ms", "e2e_ms", *_RATES),
    limit=1.25,
    unit="times between the halves",
    advice="Speed drifted while measuring: raise load.warmup, measure longer, and look for other load.",
    measure=_steady,
)
MEMORY_SAMPLES = Check(
    name="memory_samples",
    title="Memory was sampled",
    problem="memory hardly sampled",
    spoils=_MEMORY,
    limit=3,
    unit="samples",
    advice="The run was too short, or the engine's processes cannot be read (other user, other machine).",
    measure=_memory_samples,
)
ENGINE_ALIVE = Check(
    name="engine_alive",
    title="The engine lived to the end",
    problem="engine died",
    spoils=(*_EVERY_LATENCY, *_RATES, *_MEMORY),
    limit=1,
    unit="(1: it still answered)",
    advice="Read the end of engine.log: if it ran out of memory, lower backend.max_running or kv_bytes.",
    measure=_engine_alive,
)
