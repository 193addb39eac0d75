"""What a measurement is asked to do, what it tells meanwhile, and what it gives back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import pandas

    from backends.base import Endpoint
    from harness.core.requests import PlannedRequest
    from harness.load.options import LoadOptions

Api = Literal["completions", "chat"]


@dataclass(frozen=True, slots=True)
class ClientJob:
    """One phase of a run.

    phase: "warmup" or "measured". A warm-up sends every request given; `load.requests` and `load.duration_s`
        bound the measured phase only.
    extras: fields added to every body (they win over the client's own).
    enforce_length: send `ignore_eos` and `min_tokens` where a request's output length is fixed.
    return_token_ids: ask the server for token ids in the stream.
    seed: of the arrival process.
    tokenizer_folder: holds tokenizer.json, for counting what the server does not tell.
    spool: folder for the raw record; made if missing, removed by the caller.
    cpus: cores the client is pinned to, None for no pinning. workers: processes that share the load, each on a
        core of its own where there are enough.
    compile: read streams with the compiled reader, where there is a C compiler.
    """

    endpoint: Endpoint
    api: Api
    requests: Sequence[PlannedRequest]
    phase: str
    load: LoadOptions
    tokenizer_folder: Path
    spool: Path
    extras: Mapping[str, Any] = field(default_factory=dict)
    enforce_length: bool = True
    return_token_ids: bool = False
    seed: int = 0
    cpus: tuple[int, ...] | None = None
    temperature: float = 0.0
    workers: int = 1
    compile: bool = True


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a phase has come, read from shared memory while it runs.

    state: "starting", "running", "draining" or "done". total: requests that may be sent. chunks: reads that
    brought part of a stream. errors: those known before parsing (an error inside a stream shows only after).
    waiting: requests that are due and held back by a bound on requests in flight.
    """

    state: str
    elapsed_s: float
    total: int
    sent: int
    finished: int
    errors: int
    in_flight: int
    waiting: int
    chunks: int


@dataclass(frozen=True, slots=True)
class Measurement:
    """What was measured.

    requests, events: tables with the columns of `harness.records.schema`; a request that was never due has no
        row.
    window_start_ns, window_end_ns: the measured window (`harness.metrics.window`); equal if nothing was measured.
    stopped_early: interrupted, told to stop, or the client process died; what came before is here.
    interrupted: by Ctrl-C or SIGTERM, even if everything had been measured by then.
    client: the client's own cost: `cpu_s` and `cpu_share` of one core inside the window, `lag_max_ms` and
        `lag_p99_ms` of its event loop, `reconnects` and more; `parse_cpu_s` is what making the tables of the raw
        record took afterwards, in this process. `failure` says why where it died. Of several
        workers: sums, and the worst one's shares and lags; each one's own in `each_worker`.
    """

    requests: pandas.DataFrame
    events: pandas.DataFrame
    window_start_ns: int
    window_end_ns: int
    stopped_early: bool
    client: dict[str, Any]
    interrupted: bool = False
