"""Outcomes as the two tables of a recorded run."""

from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy
import orjson
import pandas
from pandas.api.types import pandas_dtype

from harness.client.outcome import SAMPLE_CHARACTERS, Outcome
from harness.client.tokens import TokenCount, count_tokens
from harness.core.requests import PlannedRequest
from harness.core.tokenizer import Tokenizer
from harness.records.schema import EVENT_COLUMNS, REQUEST_COLUMNS


def tables(
    outcomes: Iterable[Outcome], requests: Sequence[PlannedRequest], phase: str, tokenizer: Tokenizer
) -> tuple[pandas.DataFrame, pandas.DataFrame]:
    """The two tables of one phase; `raw.request` of an outcome is a position in `requests`.

    Outcomes are looked at one by one and forgotten: of millions of events only the columns are kept.
    """
    rows: list[dict[str, Any]] = []
    counts: list[int] = []
    estimated: list[bool] = []
    instants, tokens = array("q"), array("i")
    for outcome in outcomes:
        request = requests[outcome.raw.request]
        count = count_tokens(outcome, tokenizer)
        rows.append(_row(outcome, request, phase, count))
        counts.append(len(outcome.events))
        estimated.append(count.estimated)
        instants.extend([event.ns for event in outcome.events])
        tokens.extend(count.per_event)
    order = numpy.argsort(numpy.array(instants, dtype="int64"), kind="stable")
    events = {
        "phase": numpy.full(len(order), phase, dtype=object),
        "index": numpy.repeat(numpy.array([row["index"] for row in rows], dtype="int32"), counts)[order],
        "ns": numpy.array(instants, dtype="int64")[order],
        "tokens": numpy.array(tokens, dtype="int32")[order],
        "estimated": numpy.repeat(numpy.array(estimated, dtype=bool), counts)[order],
    }
    event_table = _table(events, EVENT_COLUMNS)
    columns = {name: [row[name] for row in rows] for name in REQUEST_COLUMNS}
    return _table(columns, REQUEST_COLUMNS), event_table


def _table(columns: Mapping[str, Any], dtypes: Mapping[str, str]) -> pandas.DataFrame:
    series = {name: pandas.Series(columns[name], dtype=pandas_dtype(dtype)) for name, dtype in dtypes.items()}
    return pandas.DataFrame(series)


def _row(outcome: Outcome, request: PlannedRequest, phase: str, count: TokenCount) -> dict[str, Any]:
    raw, events = outcome.raw, outcome.events
    return {
        "phase": phase,
        "index": request.index,
        "session": request.session,
        "turn": request.turn,
        "ok": outcome.error is None,
        "error": outcome.error,
        "error_detail": outcome.detail,
        "http_status": raw.status,
        "scheduled_ns": raw.scheduled_ns,
        "sent_ns": raw.sent_ns,
        "headers_ns": raw.headers_ns,
        "first_ns": events[0].ns if events else None,
        "last_ns": events[-1].ns if events else None,
        "end_ns": outcome.end_ns,
        "prompt_tokens": request.prompt_tokens if raw.prompt_tokens is None else raw.prompt_tokens,
        "prompt_tokens_usage": outcome.usage_count("prompt_tokens"),
        "cached_tokens": outcome.cached_tokens,
        "output_tokens": count.total,
        "output_tokens_source": count.source,
        "output_tokens_tokenizer": count.by_tokenizer,
        "output_tokens_planned": request.output_tokens,
        "finish_reason": outcome.finish_reason,
        "events": len(events),
        "reads": outcome.reads,
        "retries": raw.retries,
        "unexpected": outcome.unexpected,
        "unexpected_sample": outcome.unexpected_sample and outcome.unexpected_sample[:SAMPLE_CHARACTERS],
        "text": outcome.text,
        "expected": orjson.dumps(request.expected).decode(),
        "tags": orjson.dumps(request.tags, option=orjson.OPT_SORT_KEYS).decode(),
    }
