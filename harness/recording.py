"""What a run has found out, and how that becomes its record."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from backends.base import Backend
from backends.running_server import idle_settings
from harness.calibrate.kept import Capacity, kept_capacity
from harness.client import Measurement
from harness.client.merging import cores_used
from harness.config import Config, HardwareOptions, shown_config
from harness.core.errors import RecordError
from harness.core.model_store import ModelFiles
from harness.core.requests import Plan
from harness.core.secrets import without_secrets
from harness.core.tokenizer import Tokenizer
from harness.cores import CoreShares
from harness.fingerprint import fingerprint
from harness.load.options import LoadOptions
from harness.metrics.cost import concurrent_users, cost_summary
from harness.metrics.pace import Pace
from harness.metrics.resources import UNKNOWN, Held
from harness.metrics.slo import SloOptions
from harness.metrics.summary import summarise
from harness.metrics.window import NS_PER_S, Window
from harness.records.ids import new_run_id
from harness.records.writer import RunWriter
from harness.telemetry.sampler import Sampler
from harness.validity.check import Evidence
from harness.validity.prefixes import shareable_tokens
from harness.validity.registry import evaluate


@dataclass(frozen=True, slots=True)
class Prepared:
    """Everything that can be decided before anything is started."""

    config: Config
    model: ModelFiles
    tokenizer: Tokenizer
    backend: Backend
    plan: Plan
    cores: CoreShares
    workers: int = 1


@dataclass
class Findings:
    """What a run has found out so far; whatever is here when it ends is written. notes: for the fingerprint's."""

    launch: dict[str, tuple[str, ...]] = field(default_factory=dict)
    warmup: Measurement | None = None
    measurement: Measurement | None = None
    telemetry: pd.DataFrame | None = None
    quality: dict[str, Any] = field(default_factory=dict)
    next_tokens: pd.DataFrame | None = None
    engine_alive: bool = True
    pace_before: Pace | None = None
    pace_after: Pace | None = None
    notes: list[str] = field(default_factory=list)


def build_record(
    prepared: Prepared, findings: Findings, started_at: datetime, error: Exception | None, sweep: str | None
) -> dict[str, Any]:
    """Everything of run.json but schema, id and status."""
    config = prepared.config
    measurement = findings.measurement
    known: dict[str, Any] = {}
    if measurement is not None:
        requests, _, _ = tables(findings)
        known = {
            "engine_alive": findings.engine_alive if config.backend.base_url is None else None,
            "shareable_prompt_tokens": None
            if requests is None
            else _shareable_tokens(prepared.plan, requests),
            "client_capacity": _capacity(measurement),
            "client_lacks": _lacks(prepared, measurement),
            "drift_limit": config.hardware.drift_limit,
        }
    begun = begun_record(prepared, started_at, sweep)
    begun["fingerprint"]["notes"] += findings.notes
    return {
        **begun,
        "reason": str(error) if error else None,
        "launch": {phase: without_secrets(line) for phase, line in findings.launch.items()},
        **figures(findings, config.load, config.slo, config.hardware, known, _held(prepared)),
    }


def begun_record(prepared: Prepared, started_at: datetime, sweep: str | None) -> dict[str, Any]:
    """What is known of a run before it measures anything: all that says what it is."""
    config = prepared.config
    marks = fingerprint(prepared.plan, prepared.model, prepared.backend.versions(), prepared.cores)
    abilities = prepared.backend.capabilities()
    marks["caveats"] = list(abilities.caveats)
    marks["notes"] += abilities.notes
    if idle := idle_settings(config.backend):
        marks["notes"].append(
            f"the server ran already, with its owner's settings: {', '.join(f'backend.{key}' for key in idle)} are "
            "recorded but were not put in force"
        )
    if getattr(config.backend, "verify_tls", True) is False:
        marks["notes"].append("the server's certificate was not verified (backend.verify_tls=false)")
    return {**bare_record(config, started_at, None, sweep), "fingerprint": marks}


def figures(
    findings: Findings,
    load: LoadOptions,
    slo: SloOptions,
    hardware: HardwareOptions,
    known: dict[str, Any],
    held: Held = UNKNOWN,
) -> dict[str, Any]:
    """The keys of run.json that are computed from the tables; empty where nothing was measured.

    known: fields of Evidence that do not follow from the tables, so far as somebody knows them.
    """
    requests, events, telemetry = tables(findings)
    measurement = findings.measurement
    summary: dict[str, Any] = {}
    validity: list[dict[str, Any]] = []
    window = _window(load, measurement)
    if measurement and window and requests is not None and events is not None:
        frame = telemetry if telemetry is not None else Sampler([]).frame()
        summary = summarise(requests, events, frame, window, slo, held)
        summary["quality"] = findings.quality
        users = concurrent_users(window.to_record(), summary)
        summary["cost"] = cost_summary(summary, hardware.price_per_hour, hardware.currency, users)
        evidence = Evidence(
            requests=requests,
            events=events,
            telemetry=frame,
            window=window,
            open_loop=load.open_loop,
            client_cpu_share=measurement.client.get("cpu_share"),
            client_cores=cores_used(measurement.client),
            event_loop_lag_ms=measurement.client.get("lag_p99_ms"),
            kernel_stamps=measurement.client.get("stamps") == "kernel",
            even_load=load.even,
            pace=(findings.pace_before, findings.pace_after),
            **known,
        )
        validity = evaluate(evidence)
    return {
        "summary": summary,
        "validity": validity,
        "window": window.to_record() if window else {},
        "client": measurement.client if measurement else {},
        "pace": {
            name: look.to_record()
            for name, look in (("before", findings.pace_before), ("after", findings.pace_after))
            if look
        },
    }


def _held(prepared: Prepared) -> Held:
    """What is known of the engine's memory before it runs."""
    size = prepared.backend.weight_size(prepared.model)
    return Held(
        kv_pool_touched=prepared.backend.capabilities().kv_pool_touched,
        weights_bytes=size.bytes if size is not None else None,
        weights_source=size.source if size is not None else None,
        prefix_cache=bool(prepared.config.backend.prefix_cache),
    )


def _capacity(measurement: Measurement) -> Capacity | None:
    """What the client of this run measures exactly, all its workers together."""
    one = kept_capacity()
    return None if one is None else one.times(int(measurement.client.get("workers") or 1))


def _lacks(prepared: Prepared, measurement: Measurement) -> tuple[str, ...]:
    """What the client had when this machine was calibrated, and did not have in this run."""
    capacity = kept_capacity()
    if capacity is None:
        return ()
    return capacity.lacking(prepared.cores.client is not None, bool(measurement.client.get("realtime")))


def bare_record(
    config: Config, started_at: datetime, error: Exception | None, sweep: str | None
) -> dict[str, Any]:
    """What is known of a run however little came of it."""
    return {
        "reason": str(error) if error else None,
        "started_at": started_at.isoformat(),
        "sweep": sweep,
        "config": shown_config(config),
    }


def tables(findings: Findings) -> tuple[pd.DataFrame | None, pd.DataFrame | None, pd.DataFrame | None]:
    """Requests and events of both phases, and telemetry."""
    parts = [m for m in (findings.warmup, findings.measurement) if m is not None]
    if not parts:
        return None, None, None
    requests = pd.concat([part.requests for part in parts], ignore_index=True)
    events = pd.concat([part.events for part in parts], ignore_index=True)
    return requests, events, findings.telemetry


def _window(load: LoadOptions, measurement: Measurement | None) -> Window | None:
    if measurement is None or measurement.window_end_ns <= measurement.window_start_ns:
        return None
    seconds = (measurement.window_end_ns - measurement.window_start_ns) / NS_PER_S
    bound_s = load.bound_s
    by_time = bound_s is not None and seconds >= bound_s
    return Window(
        measurement.window_start_ns,
        measurement.window_end_ns,
        "time" if by_time else "count",
        None if load.open_loop else load.concurrency,
    )


def _shareable_tokens(plan: Plan, requests: pd.DataFrame) -> int | None:
    """Prompt tokens that the plan lets a prefix cache find among the requests that were really sent.

    None with real history: what the engine answered stands in later prompts, and the plan does not know it.
    """
    if any(request.segments for request in plan.requests):
        return None
    sent = requests[requests["sent_ns"].notna()]
    phases = {str(phase): set(rows["index"]) for phase, rows in sent.groupby("phase")}
    measured, warmup = phases.get("measured", set()), phases.get("warmup", set())
    return shareable_tokens(
        (request.prompt_ids for request in plan.requests if request.index in measured),
        (request.prompt_ids for request in plan.warmup if request.index in warmup),
    )


def record_failure(config: Config, error: Exception, sweep: str) -> str | None:
    """Record a run that could not even start; returns its id, or None where that cannot be written either."""
    record = bare_record(config, datetime.now(UTC), error, sweep)
    try:
        with RunWriter(
            Path(config.results_dir), new_run_id(config.backend.name, config.workload.name)
        ) as writer:
            writer.finish("failed", record)
            return writer.run_id
    except RecordError:
        return None
