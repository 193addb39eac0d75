"""What is not the same in all runs of a report: options, and what their fingerprints tell."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from harness.records.reader import Run
from harness.report.labels import differing_options
from harness.report.values import MISSING, flatten

_SHOWN_VALUES = 6  # of one key that differs
_HASH, _HASH_CHARACTERS = re.compile(r"[0-9a-f]{40,}"), 12  # a dozen are enough to tell two apart


def options_that_differ(runs: Sequence[Run]) -> list[tuple[str, list[str]]]:
    """Options that are not the same in all runs, with their first distinct values in order of appearance."""
    flat = [flatten(run.config) for run in runs]
    return [(key, _distinct(key, flat)) for key in differing_options(runs)]


def fingerprints_that_differ(runs: Sequence[Run]) -> list[tuple[str, list[str]]]:
    """What is not the same in all fingerprints (versions, machine, plan, model), with its first distinct values."""
    flat = [flatten(run.fingerprint) for run in runs if run.status != "failed"]
    keys = sorted({key for fingerprint in flat for key in fingerprint})
    return [(key, found) for key in keys if len(found := _distinct(key, flat)) > 1]


def pairs(record: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Every value of a record by its dotted path."""
    return [(key, _text(value)) for key, value in flatten(record).items()]


def _distinct(key: str, records: Iterable[Mapping[str, Any]]) -> list[str]:
    """At most _SHOWN_VALUES, then how many more; a record without the key is told from one that says null."""
    found = dict.fromkeys(_text(record[key]) if key in record else MISSING for record in records)
    values = [value[:_HASH_CHARACTERS] if _HASH.fullmatch(value) else value for value in found]
    more = [f"and {len(values) - _SHOWN_VALUES} more"] if len(values) > _SHOWN_VALUES else []
    return [*values[:_SHOWN_VALUES], *more]


def _text(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return str(value)
