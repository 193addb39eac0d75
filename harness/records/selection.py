"""Which recorded runs a command is about: ids and patterns, narrowed by engine, workload, status and age."""

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatch
from pathlib import Path

from harness.core.errors import RecordError, UsageError
from harness.records.paths import pick
from harness.records.reader import Run, find_runs, list_runs, read_run
from harness.records.schema import STATUSES

FILTERS = ("filter.backend", "filter.workload", "filter.status", "filter.since")
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


@dataclass(frozen=True)
class Selection:
    """patterns: ids, folders or shell patterns over ids; none of them means all runs. backend, workload, status:
    shell patterns, "" for any. since: the earliest start, None for any.
    """

    patterns: tuple[str, ...] = ()
    backend: str = ""
    workload: str = ""
    status: str = ""
    since: datetime | None = None

    @property
    def narrows(self) -> bool:
        """Whether it asks for anything but all runs."""
        return bool(self.patterns or self.backend or self.workload or self.status or self.since)

    def holds(self, run: Run) -> bool:
        """Whether the filters let this run through."""
        return (
            _matches(self.backend, pick(run.config, "backend.name"))
            and _matches(self.workload, pick(run.config, "workload.name"))
            and _matches(self.status, run.status)
            and (self.since is None or _started(run) >= self.since)
        )


def selection_of(given: Mapping[str, str], now: datetime | None = None) -> Selection:
    """From `runs` and the keys of FILTERS. Raises UsageError for a status or an age that is none."""
    status = given.get("filter.status", "")
    if status and not any(fnmatch(known, status) for known in STATUSES):
        raise UsageError(f"filter.status={status} is no status. There are: {', '.join(STATUSES)}.")
    since = given.get("filter.since")
    return Selection(
        names(given.get("runs", "")),
        given.get("filter.backend", ""),
        given.get("filter.workload", ""),
        status,
        _instant(since, now or datetime.now(UTC)) if since else None,
    )


def names(text: str) -> tuple[str, ...]:
    """`[A,B]` or `A,B` as its parts."""
    inside = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    parts = inside.split(",")
    return tuple(part.strip().strip("'\"") for part in parts if part.strip())


def select(selection: Selection, results_dir: Path) -> list[Run]:
    """The runs that are meant, in the order asked for, else oldest first.

    A damaged record that nobody named is passed over. Raises RecordError where a name matches none, and where nothing
    is left, naming what there is.
    """
    named = list(selection.patterns)
    runs = find_runs(named, results_dir) if named else list(_readable(results_dir))
    found = [run for run in runs if selection.holds(run)]
    if not found:
        there = {"backends": "backend.name", "workloads": "workload.name"}
        known = [
            f"{what}: {', '.join(sorted({str(pick(run.config, path)) for run in runs}))}"
            for what, path in there.items()
            if runs
        ]
        raise RecordError(
            f"No run of {results_dir / 'runs'} is meant by that. It holds {len(runs)} "
            f"{'run' if len(runs) == 1 else 'runs'}{' (' + '; '.join(known) + ')' if known else ''}."
        )
    return found


def _readable(results_dir: Path) -> Iterator[Run]:
    for name in list_runs(results_dir):
        with contextlib.suppress(RecordError):
            yield read_run(name, results_dir)


def _started(run: Run) -> datetime:
    instant = datetime.fromisoformat(run.started_at)
    return instant if instant.tzinfo else instant.replace(tzinfo=UTC)


def _matches(pattern: str, value: object) -> bool:
    return not pattern or fnmatch(str(value), pattern)


def _instant(text: str, now: datetime) -> datetime:
    if age := re.fullmatch(r"(\d+)([mhdw])", text):
        try:
            return now - timedelta(**{_UNITS[age[2]]: int(age[1])})
        except OverflowError:
            raise UsageError(f"filter.since={text} is longer ago than there are dates.") from None
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"filter.since={text} is neither an age (30m, 12h, 7d, 2w) nor a date (2026-11-30)."
        ) from None
    return instant if instant.tzinfo else instant.astimezone()
