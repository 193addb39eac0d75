"""One run, from configuration to record. Reads from top to bottom as the run happens."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from backends.base import Backend
from backends.process import free_port
from backends.registry import make_backend
from harness.client import ClientJob, Measurement, Progress, measure
from harness.config import Config
from harness.core.errors import EngineError, HarnessError
from harness.core.interrupts import held_back
from harness.core.metric_names import KV_USED_BYTES
from harness.core.model_store import ModelFiles, resolve
from harness.core.requests import Plan, PlannedRequest
from harness.core.tokenizer import Tokenizer
from harness.fixed_work import take_look
from harness.load.check import check_instants, check_load, short_plan
from harness.load.options import LoadOptions
from harness.metrics.pace import Pace
from harness.placement import engine_cores, place
from harness.quality.phase import check_quality, engine_for_quality, measure_quality
from harness.recording import Findings, Prepared, bare_record, begun_record, build_record, tables
from harness.records.ids import new_run_id
from harness.records.writer import RunWriter
from harness.screen import Screen
from harness.serving import Server, serve
from harness.telemetry.sampler import Sampler
from harness.telemetry.sources import EngineMetrics, ProcessTree, optional_sources
from workloads.registry import draw_plan

# Fills the findings of one run while an engine answers.
Measuring = Callable[[Prepared, Findings, RunWriter, Screen], None]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended. `error` is what to tell the user; run_id is None where nothing was recorded."""

    run_id: str | None
    status: str
    error: Exception | None = None
    interrupted: bool = False


def prepare(config: Config, screen: Screen, busiest: LoadOptions | None = None) -> Prepared:
    """Find the model, check every option, draw the plan, make what the engine needs. Starts nothing.

    busiest: the highest load that the same engine will see, where other runs follow on it. Raises UsageError,
    ModelError or EngineError.
    """
    with screen.phase(f"Model {config.model.name}") as detail:
        backend, model, tokenizer = checked(config, detail)
    plan = draw(config, model, tokenizer, screen)
    # Last, since it may take minutes: all that can be wrong in what was asked for is known by then.
    if config.backend.base_url is None:
        with screen.phase(f"Preparing {config.backend.name}") as detail:
            backend.install(detail)
            backend.prepare(model, detail)
    placed = place(config, plan, busiest)
    return Prepared(config, model, tokenizer, backend, plan, placed.cores, placed.workers)


def checked(config: Config, say: Callable[[str], None]) -> tuple[Backend, ModelFiles, Tokenizer]:
    """Whether this can be asked at all, but for the plan: the options of load, engine, model and quality.

    say: told what takes time. Raises UsageError or ModelError.
    """
    backend = make_backend(config.backend)
    check_load(config.load)
    if config.backend.port is not None and config.backend.base_url is None:
        free_port(config.backend.port)
    model = resolve(config.model.source(), say)
    backend.check(model)
    tokenizer = model.tokenizer()
    check_quality(config.quality, backend, model.geometry, tokenizer, config.seed)
    return backend, model, tokenizer


def draw(config: Config, model: ModelFiles, tokenizer: Tokenizer, screen: Screen) -> Plan:
    """The plan that this configuration asks for. Raises UsageError."""
    with screen.phase(f"Drawing the {config.workload.name} workload"):
        plan = draw_plan(
            config.workload,
            tokenizer,
            config.seed,
            config.load.warmup,
            config.backend.context_length or model.geometry.context_length,
        )
    check_instants(config.load, plan.requests)
    if short := short_plan(config.load, len({request.session for request in plan.requests})):
        screen.warn(short)
    return plan


def execute(
    prepared: Prepared, screen: Screen, sweep: str | None, measuring: Measuring | None = None
) -> Outcome:
    """Measure and record. Never raises for a failed run: the outcome says what happened, the record too.

    measuring: what to do instead of `speed_and_quality`, for runs that share an engine.
    """
    config = prepared.config
    started_at = datetime.now(UTC)
    findings = Findings()
    status, interrupted = "complete", False
    error: Exception | None = None
    with RunWriter(Path(config.results_dir), new_run_id(config.backend.name, config.workload.name)) as writer:
        try:
            writer.begin(begun_record(prepared, started_at, sweep))
            findings.pace_before = _pace(prepared, findings, "before")
            (measuring or speed_and_quality)(prepared, findings, writer, screen)
        except KeyboardInterrupt:
            error, interrupted = HarnessError("interrupted"), True
        except Exception as raised:  # recorded, then told by the session; a sweep goes on
            error = raised
        if error is None and findings.measurement is not None:
            error = _all_failed(findings.measurement)
        if error is not None:
            status = (
                "partial" if findings.measurement is not None and _any_ok(findings.measurement) else "failed"
            )
        with held_back() as signals, screen.phase("Writing the record"):
            try:
                if error is None:  # all is measured: who interrupts the look keeps a complete run
                    findings.pace_after = _pace(prepared, findings, "after")
                record = build_record(prepared, findings, started_at, error, sweep)
            except Exception as raised:  # figures can be made again from the tables, which must not be lost
                error = error or raised
                status = "partial" if findings.measurement is not None else "failed"
                record = bare_record(config, started_at, error, sweep)
            writer.finish(status, record, *tables(findings), findings.next_tokens)
    return Outcome(writer.run_id, status, error, interrupted or bool(signals))


def _pace(prepared: Prepared, findings: Findings, when: str) -> Pace | None:
    """How fast the engine's cores are now, while it does nothing; None where that is not asked or nobody can know.

    A look that fails is told in a note of the run and costs nothing else.
    """
    config = prepared.config
    cores = None if config.hardware.drift_limit is None else engine_cores(config, prepared.cores)
    if cores is None:
        return None
    try:
        return take_look(cores)
    except (
        OSError,
        RuntimeError,
        MemoryError,
    ) as error:  # a core gone offline, no thread, no memory to be had
        why = str(error) or type(error).__name__
        findings.notes.append(f"the machine's own speed could not be looked at {when} the run ({why})")
        return None


def speed_and_quality(prepared: Prepared, findings: Findings, writer: RunWriter, screen: Screen) -> None:
    """The engine's lifetime: warm-up, measurement, quality; fills `findings` as it goes."""
    config = prepared.config
    quality = engine_for_quality(config.quality, config.backend)
    name, model, log = config.backend.name, prepared.model, writer.engine_log
    verb = "Reaching" if config.backend.base_url else "Starting"
    with serve(prepared.backend, model, prepared.cores, log, screen.phase(f"{verb} {name}")) as server:
        findings.launch["speed"] = server.launch
        measure_speed(prepared, server, findings, writer, screen)
        if quality == config.backend:
            judge(prepared, prepared.backend, server, findings, screen)
    if quality != config.backend:
        backend = make_backend(quality)
        title = f"Restarting {name} for quality, fed {quality.prefill_chunk} tokens at a time"
        with serve(backend, model, prepared.cores, log, screen.phase(title)) as server:
            findings.launch["quality"] = server.launch
            judge(prepared, backend, server, findings, screen)


def measure_speed(
    prepared: Prepared,
    server: Server,
    findings: Findings,
    writer: RunWriter,
    screen: Screen,
    stop: Callable[[Progress], bool] = lambda progress: False,
) -> None:
    """Warm up with prompts of their own, then drive the load while telemetry looks on.

    stop: asked about ten times a second while the load is measured; what it ends raises HarnessError.
    """
    plan = prepared.plan
    if plan.warmup:
        with screen.measuring("Warming up", len(plan.warmup)) as show:
            job = _client_job(prepared, server, plan.warmup, "warmup", writer)
            findings.warmup = measure(job, _reporter(show, None), lambda: server.alive)
        _check_ending(findings.warmup, server)
        if (nothing := _all_failed(findings.warmup)) is not None:
            raise nothing
    planned = len(plan.requests)
    total = min(prepared.config.load.requests or planned, planned)
    with _telemetry(prepared, server) as sampler:
        try:
            with screen.measuring("Measuring", total) as show:
                job = _client_job(prepared, server, plan.requests, "measured", writer)
                report, stopped = _reporter(show, sampler), False

                def look(progress: Progress) -> None:
                    nonlocal stopped
                    report(progress)
                    stopped = stopped or stop(progress)

                findings.measurement = measure(job, look, lambda: server.alive and not stopped)
        finally:
            findings.engine_alive = server.alive
    findings.telemetry = sampler.frame()
    _check_ending(findings.measurement, server)


def _check_ending(measurement: Measurement, server: Server) -> None:
    """Raise what ended a phase before its time."""
    if measurement.interrupted:
        raise KeyboardInterrupt
    if not server.alive and server.process:
        raise EngineError(f"The engine ended while it was measured.\n{server.process.last_words()}")
    if measurement.stopped_early:
        why = measurement.client.get("failure") or "it was told to stop from outside."
        raise HarnessError(f"The measuring client ended early: {why}")


def judge(prepared: Prepared, backend: Backend, server: Server, findings: Findings, screen: Screen) -> None:
    """The quality phase, where one was asked for."""
    options = prepared.config.quality
    if not options.asked():
        return
    with screen.phase("Quality") as detail:
        judged = measure_quality(
            options, backend, server.endpoint, prepared.tokenizer, prepared.config.seed, detail
        )
        findings.quality, findings.next_tokens = judged.figures, judged.next_tokens


def _client_job(
    prepared: Prepared, server: Server, requests: tuple[PlannedRequest, ...], phase: str, writer: RunWriter
) -> ClientJob:
    config, abilities = prepared.config, prepared.backend.capabilities()
    return ClientJob(
        endpoint=server.endpoint,
        api="chat" if config.backend.api == "chat" else "completions",
        requests=requests,
        phase=phase,
        extras=prepared.backend.request_extras() | prepared.backend.workload_extras(config.workload.name),
        enforce_length=abilities.ignore_eos,
        return_token_ids=abilities.return_token_ids,
        load=config.load,
        seed=config.seed,
        tokenizer_folder=prepared.model.tokenizer_folder,
        spool=writer.scratch / phase,
        cpus=prepared.cores.client,
        workers=prepared.workers if phase == "measured" else 1,
    )


def _telemetry(prepared: Prepared, server: Server) -> Sampler:
    sources: list[Any] = []
    pids: Callable[[], set[int]] = lambda: set()  # noqa: E731 - replaced below where there is a process
    if server.process is not None:
        tree = ProcessTree(server.process.pid)
        pids = tree.pids
        sources.append(tree)
    if prepared.backend.capabilities().metrics:
        endpoint = server.endpoint
        url = endpoint.base_url + "/metrics"
        to_common = prepared.backend.common_metrics
        sources.append(EngineMetrics(url, endpoint.headers, to_common, endpoint.trust))
    return Sampler([*sources, *optional_sources(pids)])


def _reporter(show: Callable[[int, str], None], sampler: Sampler | None) -> Callable[[Progress], None]:
    """Turns the client's counters into the live line."""

    def report(progress: Progress) -> None:
        parts = [f"{progress.in_flight} in flight"]
        if progress.elapsed_s > 0:
            parts.append(f"{progress.chunks / progress.elapsed_s:.0f} events/s")
        if progress.errors:
            parts.append(f"{progress.errors} errors")
        kv = sampler.latest(KV_USED_BYTES) if sampler else None
        if kv is not None:
            parts.append(f"KV {kv / 1e6:.0f} MB")
        show(progress.finished, ", ".join(parts))

    return report


def _any_ok(measurement: Measurement) -> bool:
    return bool(measurement.requests["ok"].any())


def _all_failed(measurement: Measurement) -> HarnessError | None:
    """A run without a single good request has nothing to show; its first error says why."""
    if _any_ok(measurement) or measurement.requests.empty:
        return None
    first = measurement.requests.iloc[0]
    which = "Every warm-up request" if first["phase"] == "warmup" else "Every request"
    return EngineError(f"{which} failed; the first with {first['error']}: {first['error_detail']}")
