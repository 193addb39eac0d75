"""One load on the truth server by the real client, and what came of it."""

import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import OmegaConf

import conf
from backends.base import Endpoint
from harness.calibrate.errors import Errors, errors_of
from harness.calibrate.log import TrueLog, read_log
from harness.calibrate.server import Schedule, truth_server
from harness.calibrate.words import words_tokenizer
from harness.client import ClientJob, Measurement, measure
from harness.core.errors import HarnessError
from harness.core.requests import PlannedRequest
from harness.load.options import ClosedOptions, LoadOptions, PoissonOptions
from harness.metrics.peaks import most_at_once

_KINDS = {"closed": ClosedOptions, "poisson": PoissonOptions}
_BUSY_SERVER = 0.9  # of a core
_LATE_SERVER_MS = 2.0


@dataclass(frozen=True, slots=True)
class Load:
    """`requests` of `tokens` each, a token every `itl_us` once `ttft_us` and a part of `spread_us` have passed.

    kind and options: a load of conf/load, with what is changed of it.
    """

    title: str
    requests: int
    tokens: int
    itl_us: int
    ttft_us: int = 20_000
    spread_us: int | None = None  # None: one gap, so that streams which start at once do not send at once
    kind: str = "closed"
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def schedule(self) -> Schedule:
        """What the server is told."""
        spread = self.itl_us if self.spread_us is None else self.spread_us
        return Schedule(self.ttft_us, self.itl_us, spread)

    def load_options(self) -> LoadOptions:
        """The options of conf/load with the changes."""
        values = OmegaConf.load(Path(conf.__path__[0]) / "load" / f"{self.kind}.yaml")
        fields = {str(key): value for key, value in values.items() if key != "defaults"}
        return _KINDS[self.kind](**{**fields, "warmup": 0, **self.options})


@dataclass(frozen=True, slots=True)
class Reading:
    """What one load showed.

    tokens_per_s: the median second's. streams: the most under way at once. client_us, parse_us: CPU time for each
    token, while the clock runs and for parsing afterwards. server_cpu: share of a core. server_late_ms: p99 of how
    far the server was behind its own schedule. lag_p99_ms: sent − scheduled, where there is a schedule.
    realtime: whether the system let the client be woken at once.
    """

    title: str
    errors: Errors
    tokens: int
    tokens_per_s: float
    streams: int
    events_per_read: float
    client_us: float
    client_cpu: float
    parse_us: float
    server_cpu: float
    server_late_ms: float
    server_held: int
    lag_p99_ms: float | None
    realtime: bool

    @property
    def server_saturated(self) -> bool:
        """Whether the server was at its own limit, so that the client cannot be blamed."""
        return self.server_cpu > _BUSY_SERVER or self.server_late_ms > _LATE_SERVER_MS


@dataclass(frozen=True, slots=True)
class Run:
    """A reading with everything it was made of."""

    reading: Reading
    measurement: Measurement
    log: TrueLog
    journal_bytes: int


def two_cores(available: Sequence[int]) -> tuple[tuple[int, ...] | None, tuple[int, ...] | None]:
    """The server's and the client's core; None, None on a single one."""
    return ((available[0],), (available[1],)) if len(available) > 1 else (None, None)


def _measured(job: ClientJob) -> Measurement:
    return measure(job, lambda progress: None)


def drive(
    load: Load, language: str | None = None, measured: Callable[[ClientJob], Measurement] = _measured
) -> Run:
    """Start a truth server, measure it with the real client, and compare. Raises KeyboardInterrupt on Ctrl-C.

    measured: where the client is to run, in this process's environment or another.
    """
    server_cpus, client_cpus = two_cores(sorted(os.sched_getaffinity(0)))
    with tempfile.TemporaryDirectory(prefix="calibrate-") as scratch:
        folder = Path(scratch)
        job_folder = folder / "client"
        with truth_server(load.schedule, folder, server_cpus, language) as server:
            job = client_job(load, server.base_url, job_folder, words_tokenizer(folder), client_cpus)
            measurement = measured(job)
        if measurement.interrupted:
            raise KeyboardInterrupt
        if measurement.requests.empty:
            raise HarnessError(f"The client sent nothing: {measurement.client.get('failure')}")
        log = read_log(server.log)
        journal_bytes = sum(path.stat().st_size for path in job_folder.glob("*.journal*"))
        reading = _read(load, measurement, log, server.cpu_s)
        return Run(reading, measurement, log, journal_bytes)


def client_job(
    load: Load, base_url: str, spool: Path, tokenizer: Path, cpus: tuple[int, ...] | None
) -> ClientJob:
    """What the real client is told to do for `load` against a truth server at `base_url`."""
    requests = [
        PlannedRequest(
            index=number,
            prompt_ids=(number, 1, 2, 3),
            messages=({"role": "user", "content": str(number)},),
            output_tokens=load.tokens,
            max_output_tokens=load.tokens,
            session=number,
        )
        for number in range(load.requests)
    ]
    return ClientJob(
        endpoint=Endpoint(base_url, "truth", {}),
        api="completions",
        requests=requests,
        phase="measured",
        load=load.load_options(),
        tokenizer_folder=tokenizer,
        spool=spool,
        cpus=cpus,
    )


def _read(load: Load, measured: Measurement, log: TrueLog, server_cpu_s: float) -> Reading:
    rows = measured.requests
    tokens = len(measured.events)
    seconds = max(measured.window_end_ns - measured.window_start_ns, 1) / 1e9
    lags = (rows["sent_ns"] - rows["scheduled_ns"]).dropna().to_numpy(dtype=float) / 1e6
    late = log.lateness_ns() / 1e6
    reads = int(rows["reads"].sum())
    return Reading(
        title=load.title,
        errors=errors_of(rows, measured.events, log),
        tokens=tokens,
        tokens_per_s=usual_rate(measured.events["ns"].to_numpy()),
        streams=most_at_once(rows["sent_ns"].dropna().to_numpy(), rows["end_ns"].dropna().to_numpy()),
        events_per_read=tokens / reads if reads else 0.0,
        client_us=1e6 * measured.client["cpu_s"] / max(tokens, 1),
        client_cpu=measured.client["cpu_share"],
        parse_us=1e6 * measured.client["parse_cpu_s"] / max(tokens, 1),
        server_cpu=server_cpu_s / seconds,
        server_late_ms=float(np.percentile(late, 99)) if len(late) else 0.0,
        server_held=log.held,
        lag_p99_ms=float(np.percentile(lags, 99)) if load.kind != "closed" and len(lags) else None,
        realtime=bool(measured.client.get("realtime")),
    )


def usual_rate(instants_ns: np.ndarray, part_s: float = 0.2) -> float:
    """Events per second in the median part of a run that is not its beginning or its end."""
    if len(instants_ns) < 2:
        return 0.0
    since = (instants_ns - instants_ns.min()) / 1e9
    counts = np.bincount((since / part_s).astype(int))
    inner = counts[1:-1] if len(counts) > 2 else counts
    return float(np.median(inner) / part_s)
