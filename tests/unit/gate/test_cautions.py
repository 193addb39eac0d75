"""What is said beside a night's verdict."""

from pathlib import Path
from typing import Any

import pytest

from harness.gate.gating import _cautions
from harness.gate.night import BASELINE, CANDIDATE, Night
from tests.support.synthetic_runs import write_run


def _run(night: Night, side: str, look: int, hour: int, *milliseconds: float, **keys: Any) -> None:
    looks = [{"ns": 1, "arithmetic_ms": one, "copying_ms": 7.0} for one in milliseconds]
    write_run(
        night.results(side, look),
        f"r{hour:02}",
        config={"hardware": {"drift_limit": 1.2}},
        started_at=f"2026-11-30T{hour:02}:00:00+00:00",
        pace=dict(zip(("before", "after"), looks, strict=True)),
        **keys,
    )


@pytest.mark.parametrize(("last", "words"), [(11.9, None), (13.0, "30 % slower")])
def test_a_machine_that_drifted_over_the_night_is_told(tmp_path: Path, last: float, words: str | None):
    """From the first run of either side to the last one of the second look, though no single run drifted so far."""
    night = Night(tmp_path / "night", ())
    _run(night, BASELINE, 1, 1, 10.0, 10.5)
    _run(night, CANDIDATE, 1, 2, 10.5, 11.0)
    _run(night, CANDIDATE, 2, 3, 11.0, 11.5)
    _run(night, BASELINE, 2, 4, 11.5, last)
    found = [caution for caution in _cautions(night) if "The machine itself" in caution]
    assert len(found) == (words is not None)
    assert words is None or words in found[0]


def test_runs_that_a_check_spoils_are_counted_by_side(tmp_path: Path):
    night = Night(tmp_path / "night", ())
    _run(night, BASELINE, 1, 1, 10.0, 10.0)
    _run(night, CANDIDATE, 1, 2, 10.0, 10.0, evidence={"client_cpu_share": 1.0})
    assert _cautions(night) == ["candidate: 1 of 1 runs failed a validity check (client_cpu)"]
