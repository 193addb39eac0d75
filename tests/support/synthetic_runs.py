"""Records with a known schedule: what a closed loop of `slots` sessions leaves behind, by arithmetic.

Without jitter every request has the same TTFT and the same gaps, so each figure has a value that can be said
beforehand. With jitter (a seeded generator) the records look like real ones.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from harness.calibrate.kept import Capacity
from harness.metrics.cost import concurrent_users, cost_summary
from harness.metrics.pace import Pace
from harness.metrics.summary import summarise
from harness.metrics.window import Window, measured_window
from harness.records.frames import typed
from harness.records.schema import EVENT_COLUMNS, REQUEST_COLUMNS, TELEMETRY_COLUMNS
from harness.records.writer import RunWriter
from harness.validity import Evidence, evaluate

MS = 1_000_000
START = 5_000_000_000_000  # an uptime of 5000 s: instants are large integers, as real ones are
KV_BYTES_PER_TOKEN = 23_040
TELEMETRY_EVERY_MS = 200
PACE = (Pace(START - 9000 * MS, 14.0, 7.0), Pace(START + 9000 * MS, 14.2, 7.1))


@dataclass(frozen=True)
class Schedule:
    """A closed loop: each of `slots` sends its next request the moment its last one ended."""

    requests: int = 24
    tokens: int = 16
    slots: int = 4
    prompt_tokens: int = 300
    ttft_ms: float = 80.0
    lag_ms: float = 0.5  # sent − scheduled
    gap_ms: float = 20.0
    jitter: float = 0.0  # standard deviation of log(time)
    warmup: int = 2
    errors: dict[int, str] = field(default_factory=dict)  # index -> kind
    seed: int = 0


def tables(schedule: Schedule) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Requests, events and telemetry of the schedule, in the types of the record schema."""
    random = np.random.default_rng(schedule.seed)
    rows: list[dict[str, Any]] = []
    events: list[pd.DataFrame] = []
    free = START - 2 * _whole_ms(schedule)
    for index in range(schedule.warmup):
        row, frame = _request(schedule, random, "warmup", index, free)
        free = row["end_ns"]
        rows.append(row)
        events.append(frame)
    slots = [max(START, free)] * schedule.slots
    for index in range(schedule.requests):
        slot = int(np.argmin(slots))
        row, frame = _request(schedule, random, "measured", index, slots[slot])
        slots[slot] = row["end_ns"]
        rows.append(row)
        events.append(frame)
    requests = typed(rows, REQUEST_COLUMNS)
    arrived = pd.concat(events, ignore_index=True).sort_values("ns", kind="stable", ignore_index=True)
    return requests, typed(arrived, EVENT_COLUMNS), _telemetry(requests)


def write_run(
    results_dir: Path,
    run_id: str,
    schedule: Schedule | None = None,
    backend: str = "openvino",
    workload: str = "chat",
    perplexity: float | None = 19.57,
    status: str = "complete",
    evidence: dict[str, Any] | None = None,
    config: dict[str, Any] | None = None,
    fingerprint: dict[str, Any] | None = None,
    price: float | None = None,
    **keys: Any,
) -> Path:
    """Write a run as the harness would, at a `price` per hour in USD.

    `config`, `fingerprint` and `keys` replace what is in run.json.
    """
    schedule = schedule or Schedule()
    requests, events, telemetry = tables(schedule)
    window = measured_window(requests, concurrency=schedule.slots)
    assert window is not None
    summary = summarise(requests, events, telemetry, window, None)
    if perplexity is not None:
        summary["quality"] = {"perplexity": perplexity, "bits_per_byte": 0.93}
    priced = {"hardware": {"name": "auto", "price_per_hour": price, "currency": "USD"}}
    if price is not None:
        users = concurrent_users(window.to_record(), summary)
        summary["cost"] = cost_summary(summary, price, "USD", users)
    record = {
        "started_at": "2026-11-30T04:25:01+00:00",
        "config": _config(schedule, backend, workload)
        | (priced if price is not None else {})
        | (config or {}),
        "fingerprint": _fingerprint(schedule, workload) | (fingerprint or {}),
        "summary": summary,
        "validity": evaluate(evidence_of(requests, events, telemetry, window, **(evidence or {}))),
        "launch": {"speed": ["python", "-m", f"backends.serving.{backend}", "--port", "41234"]},
        "window": window.to_record(),
        "pace": {name: look.to_record() for name, look in zip(("before", "after"), PACE, strict=True)},
    } | keys
    writer = RunWriter(results_dir, run_id)
    writer.engine_log.write_text("engine: ready\n")
    return writer.finish(status, record, requests, events, telemetry)


def write_failed_run(results_dir: Path, run_id: str, reason: str, backend: str = "vllm", **keys: Any) -> Path:
    """A run that never measured anything."""
    record = {
        "started_at": "2026-11-30T04:31:12+00:00",
        "config": _config(Schedule(), backend, "chat"),
        "fingerprint": _fingerprint(Schedule(), "chat"),
        "summary": {},
        "validity": [],
        "launch": {},
        "window": {},
    }
    return RunWriter(results_dir, run_id).finish("failed", record | {"reason": reason} | keys)


def evidence_of(
    requests: pd.DataFrame, events: pd.DataFrame, telemetry: pd.DataFrame, window: Window, **changes: Any
) -> Evidence:
    """Evidence of a run in which nothing was wrong, but for `changes`."""
    values: dict[str, Any] = {
        "requests": requests,
        "events": events,
        "telemetry": telemetry,
        "window": window,
        "open_loop": False,
        "client_cpu_share": 0.08,
        "event_loop_lag_ms": 0.7,
        "engine_alive": True,
        "shareable_prompt_tokens": 0,
        "client_capacity": Capacity(10_000.0, "client", 64, "client"),
        "pace": PACE,
        "drift_limit": 1.1,
    }
    return Evidence(**(values | changes))


def _request(
    schedule: Schedule, random: np.random.Generator, phase: str, index: int, scheduled: int
) -> tuple[dict[str, Any], pd.DataFrame]:
    sent = scheduled + _ns(schedule.lag_ms)
    first = scheduled + _ns(schedule.ttft_ms * _factor(schedule, random))
    gaps = np.array([_ns(schedule.gap_ms * _factor(schedule, random)) for _ in range(schedule.tokens - 1)])
    arrivals = first + np.concatenate([[0], np.cumsum(gaps)]).astype("int64")
    kind = schedule.errors.get(index) if phase == "measured" else None
    if kind:
        arrivals = arrivals[: max(1, len(arrivals) // 2)]
    last = int(arrivals[-1])
    row = {
        "phase": phase,
        "index": index,
        "session": index,
        "turn": 0,
        "ok": kind is None,
        "error": kind,
        "error_detail": f"the stream broke off ({kind})" if kind else None,
        "http_status": 200,
        "scheduled_ns": scheduled,
        "sent_ns": sent,
        "headers_ns": sent + _ns(2),
        "first_ns": first,
        "last_ns": last,
        "end_ns": last + _ns(0.1),
        "prompt_tokens": schedule.prompt_tokens,
        "prompt_tokens_usage": schedule.prompt_tokens,
        "cached_tokens": 0,
        "output_tokens": len(arrivals),
        "output_tokens_source": "usage",
        "output_tokens_tokenizer": len(arrivals),
        "output_tokens_planned": schedule.tokens,
        "finish_reason": None if kind else "length",
        "events": len(arrivals),
        "reads": len(arrivals),
        "retries": 0,
        "unexpected": 0,
        "unexpected_sample": None,
        "text": "word " * len(arrivals),
        "expected": "[]",
        "tags": json.dumps({}),
    }
    return row, pd.DataFrame(
        {"phase": phase, "index": index, "ns": arrivals, "tokens": 1, "estimated": False}
    )


def _telemetry(requests: pd.DataFrame) -> pd.DataFrame:
    start, end = int(requests["scheduled_ns"].min()), int(requests["end_ns"].max())
    instants = np.arange(start, end + 1, TELEMETRY_EVERY_MS * MS)
    sent = requests["sent_ns"].to_numpy(dtype="int64")[:, None]
    ended = requests["end_ns"].to_numpy(dtype="int64")[:, None]
    running = (sent <= instants) & (instants < ended)
    held = running * requests["prompt_tokens"].to_numpy()[:, None]
    seconds = (instants - start) / 1e9
    frame = pd.DataFrame(
        {
            "ns": instants,
            "pss_bytes": (900_000_000 + 2_000_000 * np.minimum(seconds, 5)).astype("int64"),
            "engine_cpu_s": seconds * 0.95,
            "system_cpu_s": 1000 + seconds * 1.0,
            "requests_running": running.sum(axis=0),
            "kv_used_bytes": held.sum(axis=0) * KV_BYTES_PER_TOKEN,
            "kv_reserved_bytes": 512 << 20,
            "prefix_query_tokens_total": np.cumsum(held.sum(axis=0)),
            "prefix_hit_tokens_total": 0,
        }
    )
    return typed(frame, TELEMETRY_COLUMNS)


def _config(schedule: Schedule, backend: str, workload: str) -> dict[str, Any]:
    return {
        "seed": schedule.seed,
        "repeats": 1,
        "backend": {"name": backend, "dtype": "f32", "kv_dtype": "f16", "max_running": 16},
        "workload": {"name": workload, "output_tokens": schedule.tokens},
        "load": {"name": "closed", "concurrency": schedule.slots, "requests": schedule.requests},
        "model": {"name": "smollm2-135m"},
    }


def _fingerprint(schedule: Schedule, workload: str) -> dict[str, Any]:
    return {
        "plan_sha256": f"{workload}-{schedule.requests}-{schedule.tokens}-{schedule.seed}".ljust(64, "0"),
        "workload": workload,
        "model": "smollm2-135m",
        "model_sha256": "b179c952".ljust(64, "0"),
        "notes": [],
        "engine": {"openvino": "2026.4.1"},
        "harness_commit": "4bd828701234",
        "machine": {
            "cpu": "Example CPU @ 2.60GHz",
            "cores": 2,
            "memory_bytes": 24 << 30,
            "gpus": [],
            "kernel": "6.1.0",
            "system": "Linux",
        },
    }


def _factor(schedule: Schedule, random: np.random.Generator) -> float:
    return float(np.exp(random.normal(0, schedule.jitter))) if schedule.jitter else 1.0


def _ns(ms: float) -> int:
    return round(ms * MS)


def _whole_ms(schedule: Schedule) -> int:
    return _ns((schedule.ttft_ms + schedule.gap_ms * schedule.tokens) * (schedule.warmup + 1))
