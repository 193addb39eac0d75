"""Everything of a job that is done before the clock starts: bodies, sessions, limits, files."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson

from harness.client.address import Address
from harness.client.bodies import BodyStyle, request_head
from harness.client.chunk_reader import compiled_reader
from harness.client.fanout import check_open_files
from harness.client.job import ClientJob
from harness.client.setup import Limits, Setup, Turn
from harness.client.stored import Phase
from harness.core.errors import HarnessError, UsageError
from harness.core.requests import PlannedRequest
from harness.load.check import check_load
from harness.load.options import LoadOptions

_MOST_READY = 1024  # connections opened ahead of an open loop


@dataclass(frozen=True, slots=True)
class Prepared:
    """A job ready to run.

    requests: those that may be sent, which the client numbers from 0. log: the client's stderr.
    """

    setup: Setup
    requests: list[PlannedRequest]
    log: Path

    @property
    def total(self) -> int:
        """How many requests may be sent."""
        return len(self.requests)


def prepare(job: ClientJob) -> Prepared:
    """Write the files the client reads, and make its setup. Raises UsageError for a job that cannot be."""
    check_load(job.load)
    _check_cpus(job.cpus)
    address = Address.parse(job.endpoint.base_url)
    if address.tls:
        job.endpoint.trust.context()
    measured = job.phase != "warmup"
    requests = list(job.requests)
    if measured and job.load.requests is not None:
        requests = requests[: job.load.requests]
    if job.load.concurrency is not None:
        check_open_files(min(job.load.concurrency, len(requests)), job.workers)
    if job.api == "chat" and not all(request.messages for request in requests):
        raise UsageError(
            "api=chat needs messages, and this workload has token ids only. Choose backend.api=completions."
        )
    style = BodyStyle(
        api=job.api,
        model=job.endpoint.model_name,
        extras=dict(job.extras),
        enforce_length=job.enforce_length,
        return_token_ids=job.return_token_ids,
        temperature=job.temperature,
    )
    files = {
        name: job.spool / f"{job.phase}.{name}"
        for name in ("asked", "bodies", "journal", "result", "history", "log")
    }
    sessions = _sessions(requests)
    try:
        job.spool.mkdir(parents=True, exist_ok=True)
        for stale in ("journal", "result"):
            files[stale].unlink(missing_ok=True)
        Phase.of(job, requests).save(files["asked"])
        scale = job.load.replays if measured else None
        turns = _write_bodies(files["bodies"], style, requests, sessions, _names(job, requests), scale)
        history = _write_history(files["history"], job, style, requests, sessions)
    except OSError as error:
        raise HarnessError(
            f"{job.spool} cannot be written ({error.strerror}). Free space or choose another."
        ) from error
    load = job.load
    setup = Setup(
        host=address.host,
        port=address.port,
        tls=address.tls,
        trust=job.endpoint.trust,
        head=request_head(address, style.path, job.endpoint.headers).decode("latin-1"),
        connections=_connections(load, len(sessions)),
        arrival=load.arrival(job.seed, [requests[numbers[0]].arrival_s for numbers in sessions])
        if measured
        else load.warmup_arrival(job.seed),
        sessions=turns,
        limits=_limits(load, measured),
        bodies=str(files["bodies"]),
        journal=str(files["journal"]),
        result=str(files["result"]),
        counters_fd=-1,
        history=history,
        cpus=job.cpus,
        chunk_reader=_chunk_reader(job, address),
    )
    return Prepared(setup, requests, files["log"])


def _chunk_reader(job: ClientJob, address: Address) -> str | None:
    """With TLS what is read from the socket is not yet an answer."""
    library = compiled_reader() if job.compile and not address.tls else None
    return str(library) if library is not None else None


def _check_cpus(cpus: tuple[int, ...] | None) -> None:
    available = os.sched_getaffinity(0)
    if cpus is not None and not (cpus and available.issuperset(cpus)):
        raise UsageError(f"The client cannot be pinned to cores {list(cpus)}; there are {sorted(available)}.")


def _sessions(requests: Sequence[PlannedRequest]) -> list[list[int]]:
    """Numbers of the requests, by session in order of first appearance, turns in order."""
    sessions: dict[int, list[int]] = {}
    for number, request in enumerate(requests):
        sessions.setdefault(request.session, []).append(number)
    return [sorted(numbers, key=lambda number: requests[number].turn) for numbers in sessions.values()]


def _names(job: ClientJob, requests: Sequence[PlannedRequest]) -> list[str]:
    """X-Request-Id of each request, by which a server's log can be matched; the user's own header wins."""
    if any(header.lower() == "x-request-id" for header in job.endpoint.headers):
        return [""] * len(requests)
    return [f"{job.phase}-{request.index}" for request in requests]


def _write_bodies(
    path: Path,
    style: BodyStyle,
    requests: Sequence[PlannedRequest],
    sessions: list[list[int]],
    names: Sequence[str],
    time_scale: float | None,
) -> tuple[tuple[Turn, ...], ...]:
    turns: list[tuple[Turn, ...]] = []
    offset = 0
    with path.open("wb") as file:
        for numbers in sessions:
            follows_answers = any(requests[number].segments for number in numbers)
            session: list[Turn] = []
            for number in numbers:
                request = requests[number]
                body = b"" if request.segments else style.body(request)
                file.write(body)
                think_ns = round(request.think_time_s * 1e9)
                feeds = follows_answers and number != numbers[-1]
                at_ns = None
                if time_scale is not None and request.arrival_s is not None:
                    at_ns = round(request.arrival_s * time_scale * 1e9)
                session.append(Turn(number, offset, len(body), think_ns, feeds, names[number], at_ns))
                offset += len(body)
            turns.append(tuple(session))
    return tuple(turns)


def _write_history(
    path: Path,
    job: ClientJob,
    style: BodyStyle,
    requests: Sequence[PlannedRequest],
    sessions: list[list[int]],
) -> dict[str, object] | None:
    """What the helper process is told, None where no body depends on answers."""
    dependent = [numbers for numbers in sessions if any(requests[number].segments for number in numbers)]
    if not dependent:
        return None
    with path.open("wb") as file:
        for numbers in dependent:
            session = [[number, requests[number].to_json().decode()] for number in numbers]
            file.write(orjson.dumps(session) + b"\n")
    return {"style": style, "tokenizer_folder": str(job.tokenizer_folder), "plan": str(path)}


def _connections(load: LoadOptions, sessions: int) -> int:
    """How many to open ahead: a closed loop's slots; for an open loop about five seconds of arrivals."""
    wanted = load.concurrency or min(_MOST_READY, round(5 * load.peak_rate) + 16)
    return min(wanted, sessions)


def _limits(load: LoadOptions, measured: bool) -> Limits:
    def ns(seconds: float) -> int:
        return round(seconds * 1e9)

    return Limits(
        connect_ns=ns(load.connect_timeout_s),
        first_token_ns=ns(load.first_token_timeout_s),
        token_ns=ns(load.token_timeout_s),
        request_ns=ns(load.request_timeout_s),
        drain_ns=ns(load.drain_s),
        duration_ns=ns(load.bound_s) if measured and load.bound_s is not None else None,
        cap=load.concurrency if load.open_loop else None,
        retries=load.retries,
        retry_wait_ns=ns(load.retry_wait_s),
    )
