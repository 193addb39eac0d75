"""Outcomes as the two tables of a recorded run."""

from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import orjson
import pandas
import pyarrow as pa
from pandas.api.types import pandas_dtype

from harness.client.asked import Asked
from harness.client.outcome import Outcome
from harness.client.tokens import TokenCount, count_tokens
from harness.core.requests import PlannedRequest
from harness.core.tokenizer import Tokenizer
from harness.records.schema import EVENT_COLUMNS, REQUEST_COLUMNS

_SAME_ROWS = 1 << 16


def tables(
    outcomes: Iterable[Outcome], requests: Sequence[PlannedRequest | Asked], phase: str, tokenizer: Tokenizer
) -> tuple[pandas.DataFrame, pandas.DataFrame]:
    """The two tables of one phase; `raw.request` of an outcome is a position in `requests`.

    Outcomes are looked at one by one and forgotten: of millions of events only the columns are kept.
    """
    rows: list[dict[str, Any]] = []
    estimated: list[bool] = []
    instants, tokens = array("q"), array("i")  # these grow in place, and leave no holes of what they were
    for outcome in outcomes:
        request = requests[outcome.raw.request]
        count = count_tokens(outcome, tokenizer)
        rows.append(_row(outcome, request, phase, count))
        estimated.append(count.estimated)
        instants.frombytes(outcome.ns.tobytes())
        tokens.frombytes(count.per_event.astype(np.int32).tobytes())
    counts = [row["events"] for row in rows]
    index = np.array([row["index"] for row in rows], np.int32)
    order = np.argsort(np.frombuffer(instants, np.int64), kind="stable").astype(np.uint32)
    ns = np.frombuffer(instants, np.int64)[order]
    del instants  # there may be millions of rows
    events = {
        "phase": _same(phase, len(ns)),
        "index": np.repeat(index, counts)[order],
        "ns": ns,
        "tokens": np.frombuffer(tokens, np.int32)[order],
        "estimated": np.repeat(np.array(estimated, bool), counts)[order],
    }
    del order, tokens
    event_table = _table(events, EVENT_COLUMNS)
    columns = {name: [row[name] for row in rows] for name in REQUEST_COLUMNS}
    return _table(columns, REQUEST_COLUMNS), event_table


def _same(text: str, rows: int) -> pa.ChunkedArray:
    """A column of the same text, in the memory of a part of it."""
    part = pa.array([text] * min(rows, _SAME_ROWS), pa.large_string())
    parts = [part] * (rows // _SAME_ROWS) + [part[: rows % _SAME_ROWS]]
    return pa.chunked_array(parts, pa.large_string())


def _table(columns: Mapping[str, Any], dtypes: Mapping[str, str]) -> pandas.DataFrame:
    series = {name: pandas.Series(columns[name], dtype=pandas_dtype(dtype)) for name, dtype in dtypes.items()}
    return pandas.DataFrame(series, copy=False)


def _row(outcome: Outcome, request: PlannedRequest | Asked, phase: str, count: TokenCount) -> dict[str, Any]:
    raw, answer, ns = outcome.raw, outcome.answer, outcome.ns
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
        "first_ns": int(ns[0]) if len(ns) else None,
        "last_ns": int(ns[-1]) if len(ns) else None,
        "end_ns": outcome.end_ns,
        "prompt_tokens": request.prompt_tokens if raw.prompt_tokens is None else raw.prompt_tokens,
        "prompt_tokens_usage": outcome.usage_count("prompt_tokens"),
        "cached_tokens": outcome.cached_tokens,
        "output_tokens": count.total,
        "output_tokens_source": count.source,
        "output_tokens_tokenizer": count.by_tokenizer,
        "output_tokens_planned": request.output_tokens,
        "finish_reason": answer.finish_reason,
        "events": outcome.events,
        "reads": len(np.unique(outcome.reads)),
        "retries": raw.retries,
        "unexpected": answer.unexpected,
        "unexpected_sample": answer.unexpected_sample,
        "text": outcome.text,
        "expected": orjson.dumps(request.expected).decode(),
        "tags": orjson.dumps(request.tags, option=orjson.OPT_SORT_KEYS).decode(),
    }
