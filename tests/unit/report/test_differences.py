"""What is not the same in the runs of a report."""

from types import SimpleNamespace
from typing import Any, cast

from harness.records.reader import Run
from harness.report.differences import fingerprints_that_differ, options_that_differ


def runs(part: str, *records: dict[str, Any]) -> list[Run]:
    empty = {"status": "complete", "config": {}, "fingerprint": {}}
    return [cast(Run, SimpleNamespace(**{**empty, part: record})) for record in records]


def test_a_key_that_is_missing_is_told_from_one_that_says_null():
    found = fingerprints_that_differ(runs("fingerprint", {"a": {"b": None}}, {"a": {"b": 1}}, {}))
    assert found == [("a.b", ["null", "1", "–"])]
    assert options_that_differ(runs("config", {"seed": 1}, {})) == [("seed", ["1", "–"])]


def test_hashes_are_short_and_long_lists_capped_in_both():
    digests = [f"{place:x}" * 64 for place in range(9)]
    first = [digest[:12] for digest in digests[:6]] + ["and 3 more"]
    for part, found in (("config", options_that_differ), ("fingerprint", fingerprints_that_differ)):
        told = found(runs(part, *({"model_sha256": digest} for digest in digests)))
        assert told == [("model_sha256", first)]
