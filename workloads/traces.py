"""Recorded traffic, in the formats that people publish: when requests came, and how long they and their answers were.

azure     CSV `TIMESTAMP,ContextTokens,GeneratedTokens` (Azure LLM inference traces)
burstgpt  CSV `Timestamp,Model,Request tokens,Response tokens,…`; a response of 0 tokens is a failed request. Where
          there are `Session ID` and `Elapsed time`, they say which rows are turns of one session, and how long
          their answers took
mooncake  JSONL `{"timestamp": ms, "input_length", "output_length", "hash_ids"}`; an id stands for 512 tokens
harness   requests.parquet of a recorded run, its sessions included
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.core.errors import UsageError
from workloads.corpus import json_lines

if TYPE_CHECKING:
    import pandas as pd

BLOCK_TOKENS = 512  # of a Mooncake hash id


@dataclass(frozen=True, slots=True)
class Row:
    """One recorded request. arrival_s: on a clock of the file's own. blocks: ids of its 512-token blocks, or ().

    session: what the rows of one session share, None where nothing is recorded. answered_s: when its answer was
    complete, on the same clock, None where that is not recorded.
    """

    arrival_s: float
    prompt_tokens: int
    output_tokens: int
    blocks: tuple[int, ...] = ()
    session: str | None = None
    answered_s: float | None = None


@dataclass(frozen=True, slots=True)
class Trace:
    """Rows in order of arrival. left_out: requests that had failed, and so say no length."""

    format: str
    rows: tuple[Row, ...]
    left_out: int


def read_trace(path: Path, format_name: str) -> Trace:
    """Read a trace of the format named, or of the one its content shows ("auto").

    Raises UsageError that names the file and, where there is one, the line.
    """
    try:
        with path.open("rb") as file:
            head = file.read(4096)
    except OSError as error:
        raise UsageError(
            f"workload.path={path} cannot be read: {error.strerror}. Give a trace file."
        ) from error
    name = _detect(path, head) if format_name == "auto" else format_name
    if name not in _READERS:
        raise UsageError(
            f"workload.format={name} is unknown. Choose one of auto, {', '.join(sorted(_READERS))}."
        )
    rows, left_out = _READERS[name](path)
    if not rows:
        raise UsageError(f"{path} holds no usable request ({left_out} failed ones were left out).")
    return Trace(name, tuple(sorted(rows, key=lambda row: row.arrival_s)), left_out)


def _detect(path: Path, head: bytes) -> str:
    if head.startswith(b"PAR1"):
        return "harness"
    first = head.decode("utf-8-sig", "replace").lstrip().partition("\n")[0]
    for mark, name in (
        ("ContextTokens", "azure"),
        ("Request tokens", "burstgpt"),
        ('"input_length"', "mooncake"),
    ):
        if mark in first:
            return name
    raise UsageError(
        f"{path} is of no known format (its first line is {first[:60]!r}). "
        f"Known are {', '.join(sorted(_READERS))}; name one with workload.format=NAME."
    )


def _azure(path: Path) -> tuple[list[Row], int]:
    import pandas as pd

    table = _csv(path, ("TIMESTAMP", "ContextTokens", "GeneratedTokens"))
    instants = pd.to_datetime(table["TIMESTAMP"], format="ISO8601", errors="coerce", utc=True)
    _refuse_missing(path, "TIMESTAMP", table["TIMESTAMP"], instants)
    # the first instant is taken off as whole nanoseconds: a float of the epoch would lose seven digits
    ns = instants.astype("datetime64[ns, UTC]").astype("int64")
    seconds = (ns - ns.min()) / 1e9
    return _rows(path, table, seconds, "ContextTokens", "GeneratedTokens")


def _burstgpt(path: Path) -> tuple[list[Row], int]:
    table = _csv(path, ("Timestamp", "Request tokens", "Response tokens"))
    seconds = _numbers(path, table, "Timestamp")
    session = next((name for name in ("Session ID", "SessionID") if name in table), None)
    answered = None
    if "Elapsed time" in table:  # blank where nothing was recorded, such as that of a failed request
        told = table[table["Elapsed time"].str.strip() != ""]
        ended = (seconds + _numbers(path, told, "Elapsed time")).tolist()
        answered = [None if math.isnan(at) else at for at in ended]
    return _rows(
        path,
        table,
        seconds,
        "Request tokens",
        "Response tokens",
        sessions=None if session is None else [text.strip() or None for text in table[session]],
        answered=answered,
    )


def _mooncake(path: Path) -> tuple[list[Row], int]:
    rows: list[Row] = []
    left_out = 0
    for number, entry in json_lines(path):
        place = f"{path} line {number}"
        try:
            arrival_s = float(entry["timestamp"]) / 1e3
            prompt, output = int(entry["input_length"]), int(entry["output_length"])
            blocks = tuple(int(block) for block in entry.get("hash_ids") or ())
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UsageError(
                f"{place}: expected timestamp, input_length, output_length and hash_ids ({error!r})."
            ) from error
        if prompt < 1 or output < 0:
            raise UsageError(f"{place}: a length of {min(prompt, output)} tokens cannot be.")
        if blocks and len(blocks) * BLOCK_TOKENS < prompt:
            raise UsageError(
                f"{place}: {len(blocks)} hash_ids of {BLOCK_TOKENS} tokens do not make up {prompt} tokens."
            )
        if output:
            rows.append(Row(arrival_s, prompt, output, blocks))
        else:
            left_out += 1
    return rows, left_out


def _harness(path: Path) -> tuple[list[Row], int]:
    import pandas as pd

    needed = ["phase", "session", "scheduled_ns", "end_ns", "ok"]
    needed += ["prompt_tokens", "output_tokens", "output_tokens_planned"]
    try:
        table = pd.read_parquet(path)
        table = table.loc[(table["phase"] == "measured") & table["scheduled_ns"].notna(), needed]
        table = table.reset_index(drop=True)
    except (OSError, ValueError, KeyError) as error:
        raise UsageError(f"{path} is no requests.parquet of a recorded run ({error}).") from error
    output = table["output_tokens_planned"].fillna(table["output_tokens"].where(table["ok"], 0))
    ns = table["scheduled_ns"].astype("int64")
    lengths = pd.DataFrame({"prompt": table["prompt_tokens"], "output": output})
    ended = (table["end_ns"] - ns.min()).astype("Float64") / 1e9
    return _rows(
        path,
        lengths,
        (ns - ns.min()) / 1e9,
        "prompt",
        "output",
        sessions=[str(session) for session in table["session"]],
        answered=[None if pd.isna(end) else float(end) for end in ended],
    )


_READERS: dict[str, Callable[[Path], tuple[list[Row], int]]] = {
    "azure": _azure,
    "burstgpt": _burstgpt,
    "mooncake": _mooncake,
    "harness": _harness,
}


def _csv(path: Path, columns: tuple[str, ...]) -> "pd.DataFrame":
    import pandas as pd

    try:
        table = pd.read_csv(path, dtype=str, keep_default_na=False, encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise UsageError(f"{path} cannot be read as CSV ({first}).") from error
    missing = [column for column in columns if column not in table.columns]
    if missing:
        raise UsageError(
            f"{path} line 1: the column {missing[0]!r} is missing; there are {list(table.columns)}."
        )
    return table


def _numbers(path: Path, table: "pd.DataFrame", column: str) -> "pd.Series":
    import numpy as np
    import pandas as pd

    numbers = pd.to_numeric(table[column], errors="coerce").astype(float)
    numbers = numbers.where(np.isfinite(numbers))
    _refuse_missing(path, column, table[column], numbers)
    return numbers


def _refuse_missing(path: Path, column: str, texts: "pd.Series", values: "pd.Series") -> None:
    wrong = texts[values.isna()]
    if len(wrong):
        raise UsageError(
            f"{path} line {wrong.index[0] + 2}: {column} is {wrong.iloc[0]!r}, which cannot be read."
        )


def _rows(
    path: Path,
    table: "pd.DataFrame",
    seconds: "pd.Series",
    prompt: str,
    output: str,
    sessions: Sequence[str | None] | None = None,
    answered: Sequence[float | None] | None = None,
) -> tuple[list[Row], int]:
    """Rows of a table; those without an answer are left out and counted."""
    unknown: list[None] = [None] * len(table)
    lengths: dict[str, Any] = {}
    for column, least in ((prompt, 0), (output, 0)):
        values = _numbers(path, table, column)
        wrong = ((values < least) | (values % 1 != 0)).to_numpy().nonzero()[0]
        if len(wrong):
            text = table[column].iloc[wrong[0]]
            raise UsageError(
                f"{path} line {wrong[0] + 2}: {column} is {text!r}, which is no count of tokens."
            )
        lengths[column] = values.astype(int)
    rows = [
        Row(float(at), asked, told, (), session, end)
        for at, asked, told, session, end in zip(
            seconds,
            lengths[prompt].tolist(),
            lengths[output].tolist(),
            unknown if sessions is None else sessions,
            unknown if answered is None else answered,
            strict=True,
        )
        if asked and told
    ]
    return rows, len(table) - len(rows)
