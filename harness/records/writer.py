"""Writing a run: collected in a hidden folder beside its place, renamed in one step.

A reader sees all of a run or nothing. A writer that is killed leaves a hidden folder that nobody lists
(`harness.records.unfinished`); a lock, which dies with its holder, tells it from one that is being written.
"""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import orjson

from harness.core.errors import RecordError
from harness.core.file_locks import hold, take_over
from harness.records.schema import (
    EVENT_COLUMNS,
    NEXT_TOKEN_COLUMNS,
    REQUEST_COLUMNS,
    SCHEMA,
    STATUSES,
    TELEMETRY_COLUMNS,
)

if TYPE_CHECKING:
    import pandas as pd

_TABLES = {
    "requests": REQUEST_COLUMNS,
    "events": EVENT_COLUMNS,
    "telemetry": TELEMETRY_COLUMNS,
    "next_tokens": NEXT_TOKEN_COLUMNS,
}
LOCK = Path("scratch", "lock")
BEGUN = Path("scratch", "begun.json")
_JSON = orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS


class RunWriter:
    """Collects one run. As a context manager it removes its hidden folder unless `finish` was reached.

    folder: may be written to while the run lasts (spilled buffers under `scratch`, `engine_log`).
    Raises RecordError where results_dir cannot be written.
    """

    def __init__(self, results_dir: Path, run_id: str) -> None:
        self._name(results_dir, run_id)
        starting = self.final.with_name(f".{run_id}.starting")
        try:
            (starting / "scratch").mkdir(parents=True)
            self._lock: int | None = os.open(starting / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
            hold(self._lock)
            starting.rename(self.folder)  # whoever sees the folder sees it locked
        except OSError as error:
            shutil.rmtree(starting, ignore_errors=True)
            raise _cannot_write(self.folder, error) from error

    @classmethod
    def take_over(cls, results_dir: Path, run_id: str) -> "RunWriter":
        """Go on where a writer was killed. Raises RecordError where it may still live.

        Not for use as a context manager: what could not be finished stays as it was.
        """
        writer = cls.__new__(cls)
        writer._name(results_dir, run_id)
        writer._lock = take_over(writer.folder / LOCK)
        if writer._lock is None:
            raise RecordError(
                f"{writer.folder} is being written by a run that still lives. Wait for its end."
            )
        return writer

    def _name(self, results_dir: Path, run_id: str) -> None:
        self.run_id = run_id
        self.final = results_dir / "runs" / run_id
        self.folder = hidden_folder(results_dir, run_id)
        if self.final.exists():
            raise RecordError(f"{self.final} is there already. Runs are never overwritten: remove it first.")

    def begin(self, record: Mapping[str, Any]) -> None:
        """Keep what is known before anything is measured, for `harness.recover`. Raises RecordError."""
        try:
            _write_durably(
                self.folder / BEGUN,
                orjson.dumps({"schema": SCHEMA} | dict(record), default=str, option=_JSON),
            )
        except OSError as error:
            raise _cannot_write(self.folder, error) from error

    @property
    def scratch(self) -> Path:
        """For files that are needed only until the run is written."""
        return self.folder / "scratch"

    @property
    def engine_log(self) -> Path:
        """Where the engine's output goes; kept with the run if it was ever made."""
        return self.folder / "engine.log"

    def finish(
        self,
        status: str,
        record: Mapping[str, Any],
        requests: "pd.DataFrame | None" = None,
        events: "pd.DataFrame | None" = None,
        telemetry: "pd.DataFrame | None" = None,
        next_tokens: "pd.DataFrame | None" = None,
    ) -> Path:
        """Write run.json and the tables, then rename the folder into place; returns it.

        status: complete, partial or failed. record: the other keys of run.json (schema.RUN_KEYS).
        A table that is None or without rows is not written.
        """
        if status not in STATUSES:
            raise ValueError(f"status {status!r} is none of {STATUSES}")
        tables = {
            "requests": requests,
            "events": events,
            "telemetry": telemetry,
            "next_tokens": next_tokens,
        }
        whole = {"schema": SCHEMA, "id": self.run_id, "status": status, "reason": None} | dict(record)
        try:
            try:
                self._write(whole, tables)
            except OSError:  # most often a full disk; the scratch is of no more use, and large
                shutil.rmtree(self.scratch, ignore_errors=True)
                self._write(whole, tables)
            shutil.rmtree(self.scratch, ignore_errors=True)
            self.folder.rename(self.final)
            self.close()
        except OSError as error:
            raise _cannot_write(self.folder, error) from error
        return self.final

    def discard(self) -> None:
        """Leave nothing behind; harmless after `finish`."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.close()

    def close(self) -> None:
        """Let go of the folder; harmless if it was let go before."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> "RunWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.discard()

    def _write(self, record: Mapping[str, Any], tables: "Mapping[str, pd.DataFrame | None]") -> None:
        for name, table in tables.items():
            if table is not None and len(table):
                self._write_table(name, table)
        _write_durably(self.folder / "run.json", orjson.dumps(record, default=str, option=_JSON))

    def _write_table(self, name: str, table: "pd.DataFrame") -> None:
        from harness.records.frames import typed

        path = self.folder / f"{name}.parquet"
        typed(table, _TABLES[name]).to_parquet(path, index=False, compression="zstd")


def hidden_folder(results_dir: Path, run_id: str) -> Path:
    """Where a run is while it is written."""
    return results_dir / "runs" / f".{run_id}.writing"


def _write_durably(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _cannot_write(folder: Path, error: OSError) -> RecordError:
    return RecordError(
        f"The run cannot be written below {folder.parent} ({error.strerror or error}). "
        "Free some space or its permissions, or choose another place with results_dir=FOLDER."
    )
