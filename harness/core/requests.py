"""What is asked of an engine: planned requests, and the plan that holds them.

A plan is pure data, drawn from a seed before anything starts. Same config and seed, same bytes: the SHA-256 of
its canonical JSON lines is part of every run's fingerprint.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any

import orjson

PLAN_SCHEMA = 1


@dataclass(frozen=True, slots=True)
class AnswerOf:
    """In a chat with real history: the place where what the engine answered to an earlier turn goes.

    `turn` counts from 0 within the same session.
    """

    turn: int


@dataclass(frozen=True, slots=True)
class PlannedRequest:
    """One request, complete before the run.

    prompt_ids: the exact token ids that are sent, after the model's chat template. With real history these are
        the ids as scripted, and `segments` says how to build the true ones.
    messages: the same prompt as chat messages, for servers that take no ids (`api=chat`).
    output_tokens: exactly this many tokens are asked for; None lets the model stop by itself.
    max_output_tokens: upper bound in either case (equal to output_tokens where that is fixed).
    session, turn: requests of one session follow each other; turn counts from 0.
    think_time_s: pause between the end of the previous turn's answer and this request (0 for turn 0).
    segments: real history only: literal ids and answers in order; () elsewhere.
    expected: strings an ideal answer contains (planted answers, planted facts), for quality scoring.
    tags: what else a report may group by (e.g. depth of the planted answer), JSON scalars only.
    arrival_s: when it was recorded to be sent, in seconds from the first one; None where nothing was recorded.
        It is the load that replays it (`load=trace`), or does not.
    """

    index: int
    prompt_ids: tuple[int, ...]
    messages: tuple[dict[str, str], ...]
    output_tokens: int | None
    max_output_tokens: int
    session: int
    turn: int = 0
    think_time_s: float = 0.0
    segments: tuple[tuple[int, ...] | AnswerOf, ...] = ()
    expected: tuple[str, ...] = ()
    tags: dict[str, Any] = field(default_factory=dict)
    arrival_s: float | None = None

    @property
    def prompt_tokens(self) -> int:
        """Prompt length in tokens, chat template included."""
        return len(self.prompt_ids)

    def to_json(self) -> bytes:
        """One canonical JSON line (keys sorted), without the newline."""
        record = {field.name: getattr(self, field.name) for field in fields(self)}
        if self.arrival_s is None:  # so that plans without it keep their hash
            del record["arrival_s"]
        record["segments"] = [
            {"answer_of": part.turn} if isinstance(part, AnswerOf) else list(part) for part in self.segments
        ]
        return orjson.dumps(record, option=orjson.OPT_SORT_KEYS)

    @classmethod
    def from_json(cls, line: bytes | str) -> "PlannedRequest":
        """Inverse of `to_json`. Raises KeyError, TypeError or ValueError on a line that is no request."""
        record = orjson.loads(line)
        record["prompt_ids"] = tuple(record["prompt_ids"])
        record["messages"] = tuple(record["messages"])
        record["expected"] = tuple(record["expected"])
        record["segments"] = tuple(
            AnswerOf(part["answer_of"]) if isinstance(part, dict) else tuple(part)
            for part in record["segments"]
        )
        return cls(**record)


@dataclass(frozen=True, slots=True)
class Plan:
    """The measured requests in order, and warm-up requests whose prompts are not among the measured ones.

    sources: what the text came from, for the fingerprint (e.g. {"corpus": "pydoc", "corpus_sha256": …}).
    """

    workload: str
    seed: int
    requests: tuple[PlannedRequest, ...]
    warmup: tuple[PlannedRequest, ...]
    sources: dict[str, Any] = field(default_factory=dict)

    def sessions(self) -> Iterator[tuple[PlannedRequest, ...]]:
        """The measured requests grouped by session, in order of first appearance, turns in order."""
        grouped: dict[int, list[PlannedRequest]] = {}
        for request in self.requests:
            grouped.setdefault(request.session, []).append(request)
        for turns in grouped.values():
            yield tuple(sorted(turns, key=lambda request: request.turn))

    def sha256(self) -> str:
        """Hash of the measured requests' canonical lines: equal hashes mean the engines were asked the same."""
        digest = hashlib.sha256()
        for request in self.requests:
            digest.update(request.to_json() + b"\n")
        return digest.hexdigest()
