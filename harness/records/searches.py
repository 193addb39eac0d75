"""Recorded searches and sweeps of rates: what their probes found, beside the runs that the probes are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from harness.core.errors import RecordError
from harness.records.reader import Run

SCHEMA = 1
FOLDER = "searches"  # below results_dir


@dataclass(frozen=True, slots=True)
class RecordedProbe:
    """One probe. run: id of its record. limits: of percentiles, as `judge_percentiles` leaves them.

    met: None where there was nothing to meet. stopped: why it was ended early, None where it was not. remarks: what
    else is to be known of it. attainment: share of requests within the limits of single ones, None without.
    """

    value: float
    run: str
    status: str
    met: bool | None
    stopped: str | None
    remarks: str
    limits: Sequence[Mapping[str, Any]]
    attainment: float | None
    output_tokens_per_s: float | None


@dataclass(frozen=True, slots=True)
class RecordedSearch:
    """A search or a sweep. unit: what a value counts. answer: value, missed, repeated, narrow; None for a sweep.

    needed: share of requests that had to keep the limits of single ones.
    """

    id: str
    sweep: str
    kind: str
    unit: str
    needed: float | None
    probes: tuple[RecordedProbe, ...]
    answer: Mapping[str, Any] | None
    sentence: str


def searches_of(runs: Sequence[Run]) -> list[RecordedSearch]:
    """The searches and sweeps whose probes are among these runs, oldest first.

    Raises RecordError for a damaged one in a results folder of these runs.
    """
    ids = {run.id for run in runs}
    places = dict.fromkeys(run.folder.parent.parent / FOLDER for run in runs)
    found = [read_search(path) for place in places for path in sorted(place.glob("[!.]*.json"))]
    return [search for search in found if any(probe.run in ids for probe in search.probes)]


def read_search(path: Path) -> RecordedSearch:
    """Read one. Raises RecordError where it is damaged, or newer than this program."""
    try:
        record = orjson.loads(path.read_bytes())
        if record["schema"] > SCHEMA:
            raise RecordError(
                f"{path} has schema {record['schema']}, this version reads up to {SCHEMA}. Update inference-harness."
            )
        load = record["config"]["load"]
        return RecordedSearch(
            id=record["id"],
            sweep=record["sweep"],
            kind=load["name"],
            unit=record["unit"],
            needed=load.get("attainment"),
            probes=tuple(_probe(probe) for probe in record["probes"]),
            answer=record["answer"],
            sentence=record["sentence"],
        )
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise RecordError(f"{path} is damaged ({error!r}). Restore it from a copy, or remove it.") from error


def _probe(record: Mapping[str, Any]) -> RecordedProbe:
    return RecordedProbe(
        value=record["value"],
        run=record["run"],
        status=record["status"],
        met=record["met"],
        stopped=record["stopped"],
        remarks=record.get("remarks") or "",
        limits=record.get("slo_percentiles") or (),
        attainment=record.get("slo_attainment"),
        output_tokens_per_s=record.get("output_tokens_per_s"),
    )
