"""Reading recorded runs; tables are loaded when first asked for."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from harness.core.errors import RecordError
from harness.records.ids import SAFE_ID
from harness.records.schema import (
    EVENT_COLUMNS,
    NEXT_TOKEN_COLUMNS,
    REQUEST_COLUMNS,
    RUN_KEYS,
    SCHEMA,
    STATUSES,
    TELEMETRY_COLUMNS,
)

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Run:
    """One recorded run: run.json's keys as attributes, and its tables.

    A table that the run has none of (a failed one) is an empty frame with the right columns.
    """

    folder: Path
    id: str
    status: str
    started_at: str
    reason: str | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    fingerprint: Mapping[str, Any] = field(default_factory=dict)
    summary: Mapping[str, Any] = field(default_factory=dict)
    validity: list[dict[str, Any]] = field(default_factory=list)
    launch: Mapping[str, list[str]] = field(default_factory=dict)
    window: Mapping[str, Any] = field(default_factory=dict)
    sweep: str | None = None
    client: Mapping[str, Any] = field(default_factory=dict)
    pace: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @cached_property
    def requests(self) -> "pd.DataFrame":
        """Columns of schema.REQUEST_COLUMNS."""
        return self._table("requests", REQUEST_COLUMNS)

    @cached_property
    def events(self) -> "pd.DataFrame":
        """Columns of schema.EVENT_COLUMNS."""
        return self._table("events", EVENT_COLUMNS)

    @cached_property
    def telemetry(self) -> "pd.DataFrame":
        """Columns of schema.TELEMETRY_COLUMNS, and what the engine itself reports."""
        return self._table("telemetry", TELEMETRY_COLUMNS)

    @cached_property
    def next_tokens(self) -> "pd.DataFrame":
        """Columns of schema.NEXT_TOKEN_COLUMNS."""
        return self._table("next_tokens", NEXT_TOKEN_COLUMNS)

    def _table(self, name: str, columns: Mapping[str, str]) -> "pd.DataFrame":
        import pandas as pd

        from harness.records.frames import empty, typed

        path = self.folder / f"{name}.parquet"
        if not path.exists():
            return empty(columns)
        try:
            return typed(pd.read_parquet(path), columns)
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise RecordError(f"{path} is damaged ({_first_line(error)}). {_cure(self.folder)}") from error


def read_run(run: str | Path, results_dir: Path = Path("results")) -> Run:
    """Read a run by its folder or by its id below results_dir/runs.

    Raises RecordError where there is none, where run.json is damaged, or its schema is newer than this
    program.
    """
    folder = Path(run)
    if not (folder / "run.json").is_file():
        folder = results_dir / "runs" / str(run)
    path = folder / "run.json"
    if not path.is_file():
        where = results_dir / "runs"
        raise RecordError(f"There is no run {str(run)!r} in {where}. {_what_is_there(results_dir)}")
    try:
        record = orjson.loads(path.read_bytes())
        schema = record["schema"]
        if schema > SCHEMA:
            raise RecordError(
                f"{path} has schema {schema}, this version reads up to {SCHEMA}. Update inference-harness."
            )
        if record["status"] not in STATUSES:
            raise ValueError(f"unknown status {record['status']!r}")
        if not SAFE_ID.fullmatch(record["id"]):  # it becomes part of file names
            raise ValueError(f"unsafe id {record['id']!r}")
        return Run(folder=folder, **{name: record[name] for name in RUN_KEYS if name in record})
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise RecordError(f"{path} is damaged ({_first_line(error)}). {_cure(folder)}") from error


def list_runs(results_dir: Path = Path("results")) -> list[str]:
    """Ids of the runs below results_dir/runs, oldest first; [] where there is none."""
    return sorted(path.parent.name for path in (results_dir / "runs").glob("[!.]*/run.json"))


def find_runs(patterns: list[str], results_dir: Path = Path("results")) -> list[Run]:
    """Runs by id, folder or shell pattern over ids, in the order asked for, each once.

    Raises RecordError where a pattern matches none.
    """
    names = list_runs(results_dir)
    found: dict[str, Run] = {}
    for pattern in patterns:
        matching = [name for name in names if fnmatch(name, pattern)]
        for name in matching or [pattern]:  # a folder, or an error that says what is there
            run = read_run(name, results_dir)
            found.setdefault(run.id, run)
    return list(found.values())


def latest_runs(results_dir: Path = Path("results")) -> list[Run]:
    """The runs of the latest sweep, oldest first; where the latest run belongs to none, it alone."""
    names = list_runs(results_dir)
    if not names:
        raise RecordError(f"There is no run in {results_dir / 'runs'}. Make one with: python -m harness")
    last = read_run(names[-1], results_dir)
    if last.sweep is None:
        return [last]
    return runs_of_sweep(last.sweep, results_dir)


def runs_of_sweep(sweep: str, results_dir: Path = Path("results")) -> list[Run]:
    """The runs of one command, oldest first. Raises RecordError for a damaged one."""
    runs = [read_run(name, results_dir) for name in list_runs(results_dir)]
    return [run for run in runs if run.sweep == sweep]


def _what_is_there(results_dir: Path) -> str:
    names = list_runs(results_dir)
    if not names:
        return "It holds none; another place is named with results_dir=FOLDER."
    shown = ", ".join(names[-5:])
    return f"It holds {len(names)}, the latest: {shown}."


def _cure(folder: Path) -> str:
    return f"Restore it from a copy, or remove {folder} and run it again."


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]
