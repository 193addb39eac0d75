from pathlib import Path
from typing import Any

import pytest

from harness.records.drift import drift_words
from harness.records.reader import Run, read_run
from harness.report.answer import answer
from tests.support.synthetic_runs import write_run

LIMIT = {"hardware": {"drift_limit": 1.1}}


def look(arithmetic_ms: float, cores: tuple[int, ...] = (0, 1)) -> dict[str, Any]:
    return {"ns": 1, "arithmetic_ms": arithmetic_ms, "copying_ms": 7.0, "cores": list(cores)}


def runs_of(folder: Path, *looks: tuple[float | None, float | None], **keys: Any) -> list[Run]:
    """A run for each pair of looks, an hour apart; None for a look that there was not."""
    for hour, pair in enumerate(looks):
        both = zip(("before", "after"), pair, strict=True)
        pace = {name: look(time) for name, time in both if time is not None}
        write_run(
            folder,
            f"r{hour}",
            config=LIMIT,
            started_at=f"2026-11-30T{hour:02}:00:00+00:00",
            **{"pace": pace} | keys,
        )
    return [read_run(f"r{hour}", folder) for hour in range(len(looks))]


@pytest.mark.parametrize(
    ("looks", "words"),
    [
        (((10, 10.5), (10.5, 11)), None),  # 10 % is the limit
        (((10, 10.5), (11, 11.5), (12, 12.5)), "25 % slower"),  # each run within the limit, all together not
        (((10, 9), (8, 8)), "20 % faster"),
        (((10, 20), (20, 10)), None),  # back where it began; each run's own check fails
        (((10, 10), (13, None)), "30 % slower"),  # the last run broke off
        (((None, 10), (None, 13)), "30 % slower"),
        (((10, None),), None),
    ],
)
def test_the_last_look_is_held_against_the_first(
    tmp_path: Path, looks: tuple[tuple[float | None, float | None], ...], words: str | None
):
    runs = runs_of(tmp_path, *looks)
    found = drift_words(list(reversed(runs)))
    assert (found is None) if words is None else (found is not None and words in found)
    assert answer(runs).cautions.count(str(found)) == (words is not None)


def test_nothing_is_said_of_runs_without_looks_or_of_several_machines(tmp_path: Path):
    assert drift_words(runs_of(tmp_path / "old", (10, 20), pace={})) is None
    assert drift_words(runs_of(tmp_path / "broken", (10, 20), pace={"before": look(10)})) is None
    one, two = (
        {"before": look(10, cores), "after": look(10 * len(cores), cores)} for cores in ((0,), (0, 1))
    )
    alone = runs_of(tmp_path / "alone", (10, 10), pace=one)
    beside = runs_of(tmp_path / "beside", (10, 20), pace=two)
    assert drift_words(alone) is None and drift_words(beside) is not None
    assert drift_words([*alone, *beside]) is None  # two cores share what one had for itself
    first = runs_of(tmp_path / "here", (10, 20))
    there = runs_of(tmp_path / "there", (10, 20), fingerprint={"machine": {"cpu": "another", "cores": 4}})
    assert drift_words([*first, *there]) is None
    assert drift_words([]) is None
