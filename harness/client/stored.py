"""A phase as it lies on disk: what was asked, and what the measuring processes left; read into tables from there."""

import dataclasses
import heapq
import time
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

import orjson

from harness.client.asked import Asked
from harness.client.exchanges import RawExchange, stored_exchanges
from harness.client.job import ClientJob, Measurement
from harness.client.merging import merged_result
from harness.client.outcome import Outcome, outcome_of
from harness.client.tables import tables
from harness.core.requests import PlannedRequest
from harness.core.secrets import hidden, secrets_of
from harness.core.tokenizer import Tokenizer
from harness.metrics.window import measured_window


@dataclass(frozen=True, slots=True)
class Phase:
    """What the tables of a phase are made with, beside the journals.

    secrets: words that a server may repeat in an error and no record may hold. None: there are some, and they are not
    known here, so nothing that a server said of an error is shown.
    """

    name: str
    tokenizer_folder: Path
    requests: Sequence[PlannedRequest | Asked]
    secrets: list[str] | None

    @classmethod
    def of(cls, job: ClientJob, requests: Sequence[PlannedRequest]) -> "Phase":
        """The phase of a job that is run now."""
        return cls(job.phase, job.tokenizer_folder, requests, secrets_of(job.endpoint.headers))

    def save(self, path: Path) -> None:
        """Write it without its secrets, for `load`."""
        names = [field.name for field in dataclasses.fields(Asked)]
        record = {
            "name": self.name,
            "tokenizer_folder": str(self.tokenizer_folder),
            "has_secrets": bool(self.secrets),
            "requests": [{name: getattr(request, name) for name in names} for request in self.requests],
        }
        path.write_bytes(orjson.dumps(record))

    @classmethod
    def load(cls, path: Path) -> "Phase":
        """Inverse of `save`. Raises OSError, or ValueError, KeyError, TypeError for a damaged file."""
        record = orjson.loads(path.read_bytes())
        requests = [Asked(**{**row, "expected": tuple(row["expected"])}) for row in record["requests"]]
        secrets: list[str] | None = None if record["has_secrets"] else []
        return cls(record["name"], Path(record["tokenizer_folder"]), requests, secrets)


def stored_measurement(
    phase: Phase, journals: Sequence[Path], results: Sequence[dict[str, Any]]
) -> Measurement:
    """What the workers left on disk, as the tables that one of them would have left.

    results: of each worker, empty where it left none.
    """
    result = merged_result(results)
    exchanges = heapq.merge(*map(stored_exchanges, journals), key=attrgetter("request"))
    tokenizer = Tokenizer.from_folder(phase.tokenizer_folder)
    before = time.thread_time()  # other threads sample meanwhile
    requests, events = tables(
        (_outcome(exchange, phase.secrets) for exchange in exchanges), phase.requests, phase.name, tokenizer
    )
    parse_cpu_s = time.thread_time() - before
    window = measured_window(requests, result.get("end_ns"))
    nothing_ns: int = result.get("start_ns") or 0
    return Measurement(
        requests=requests,
        events=events,
        window_start_ns=window.start_ns if window else nothing_ns,
        window_end_ns=window.end_ns if window else nothing_ns,
        stopped_early=bool(result.get("stopped")),
        client={key: value for key, value in result.items() if key not in ("start_ns", "end_ns", "stopped")}
        | {"parse_cpu_s": parse_cpu_s},
    )


def read_result(path: Path) -> dict[str, Any]:
    """What a measuring process said of itself at its end; empty if it left nothing."""
    try:
        result: dict[str, Any] = orjson.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    return result


def _outcome(exchange: RawExchange, secrets: list[str] | None) -> Outcome:
    outcome = outcome_of(exchange)
    if secrets is None:
        outcome.detail = outcome.answer.unexpected_sample = None
        return outcome
    outcome.detail = hidden(outcome.detail, secrets)
    outcome.answer.unexpected_sample = hidden(outcome.answer.unexpected_sample, secrets)
    return outcome
