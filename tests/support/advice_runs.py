"""Runs in memory whose rate, latency, price and quality are what is said: a known truth to hold advice against."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from harness.compare.settings import Terms
from harness.metrics.slo import SloOptions
from harness.records.reader import Run
from tests.support.slo_limits import slo

MS = 1_000_000
EXACT = {"name": "kvcompress", "kv_dtype": "f32", "kv": {"evict": "none", "quant": "none"}}
# Item by item: an exact run that is far above chance.
RIGHT = [True] * 190 + [False] * 10


def a_run(
    run_id: str,
    rate: float,
    setting: str = "none",
    *,
    ttft_ms: float = 100.0,
    requests: int = 60,
    price: float | None = 1.0,
    right: list[bool] | None = None,
    workload: str = "rag",
    plan: str = "p",
    failed_check: bool = False,
    **changes: Any,
) -> Run:
    """A run of 4 users whose requests all have this TTFT and a TPOT of 20 ms. setting: the way to quantise."""
    quality: dict[str, Any] = {}
    if right is not None:
        share = sum(right) / len(right)
        quality = {"recall": share, "recall_right": right, "recall_chance": 0.1}
        quality["recall_interval"] = [share - 0.05, share + 0.05]
    run = Run(
        folder=Path("nowhere/runs") / run_id,
        id=run_id,
        status="complete",
        started_at="2026-11-30T04:25:01+00:00",
        config={
            "seed": 0,
            "backend": {**EXACT, "kv": {"evict": "none", "quant": setting}},
            "workload": {"name": workload},
            "load": {"name": "closed", "concurrency": 4, "rate": None},
            "model": {"name": "smollm2-135m"},
            "hardware": {"name": "auto", "price_per_hour": price, "currency": "USD"},
            "quality": {"chunk": None, "recall": {"trials": 4} if right is not None else None},
        },
        fingerprint={"plan_sha256": plan, "model_sha256": "m"},
        summary={"output_tokens_per_s": rate, "requests_per_s": rate / 16, "quality": quality},
        validity=[
            {
                "check": "steady",
                "ok": not failed_check,
                "spoils": ["output_tokens_per_s"],
                "problem": "not steady",
            }
        ],
        window={"start_ns": 0, "end_ns": 10**12, "bounded_by": "count", "concurrency": 4},
    )
    run = replace(run, **changes)
    run.__dict__["requests"] = _requests(requests, ttft_ms)  # where the table would be read to
    return run


def terms(losses: dict[str, float | None] | None = None, attainment: float = 0.99, **limits: float) -> Terms:
    """`terms(ttft_p95_ms=500)`: at most 2 points of recall lost unless said otherwise."""
    asked: SloOptions | None = slo(**limits) if limits else None
    return Terms(asked, attainment, {"recall": 0.02} if losses is None else losses)


def _requests(count: int, ttft_ms: float) -> pd.DataFrame:
    """The columns that latencies are made of."""
    due = pd.Series(range(count), dtype="int64") * MS
    first = due + int(ttft_ms * MS)
    last = first + 15 * 20 * MS
    return pd.DataFrame(
        {
            "phase": "measured",
            "index": range(count),
            "ok": True,
            "scheduled_ns": due,
            "sent_ns": due,
            "first_ns": first,
            "last_ns": last,
            "output_tokens": 16,
        }
    )
