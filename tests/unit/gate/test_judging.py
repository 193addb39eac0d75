"""Findings from recorded runs whose figures are known by arithmetic."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from harness.compare.measures import chosen
from harness.core.errors import UsageError
from harness.gate.against_history import beyond_floor, judge_stored
from harness.gate.cells import by_cell, paired_cells
from harness.gate.findings import INCONCLUSIVE, PASSED, REGRESSED, Finding, Outcome
from harness.gate.gating import _beyond_reach
from harness.gate.judging import judge_paired, suspects
from harness.gate.junit import junit
from harness.gate.options import options_from
from harness.gate.words import annotations, headline, markdown
from harness.metrics.pace import Pace
from harness.records.reader import Run, read_run
from tests.support.synthetic_runs import Schedule, write_failed_run, write_run

OPTIONS, _ = options_from(["gate.fewest_nights=5"])
MEASURES = [measure for measure in chosen(None, {}) if measure.gating]
STEADY = [20.0, 20.2, 19.8, 20.1, 19.9]


def _runs(folder: Path, name: str, gaps: list[float], **keys: object) -> list[Run]:
    for i, gap in enumerate(gaps):
        write_run(folder, f"{name}-{i}", Schedule(gap_ms=gap), **keys)
    return [read_run(f"{name}-{i}", folder) for i in range(len(gaps))]


def _words(findings) -> dict[str, str]:
    return {finding.path: finding.word for finding in findings}


def test_a_slower_night_regresses_in_what_is_slower(tmp_path: Path):
    first = paired_cells(_runs(tmp_path, "a", STEADY), _runs(tmp_path, "b", [gap * 1.15 for gap in STEADY]))
    found = suspects(first, MEASURES, OPTIONS)
    assert {path for _, path in found} == {"tpot_ms.p50", "output_tokens_per_s"}
    words = _words(judge_paired([first, first], MEASURES, OPTIONS))
    assert words == {
        "output_tokens_per_s": REGRESSED,
        "tpot_ms.p50": REGRESSED,
        "ttft_ms.p50": PASSED,
        "memory.kv_per_request_bytes": PASSED,
    }


def test_without_a_second_look_nothing_regresses(tmp_path: Path):
    first = paired_cells(_runs(tmp_path, "a", STEADY), _runs(tmp_path, "b", [gap * 2 for gap in STEADY]))
    assert REGRESSED not in _words(judge_paired([first], MEASURES, OPTIONS)).values()


def test_an_equal_night_passes_and_a_noisy_one_is_inconclusive(tmp_path: Path):
    equal = paired_cells(_runs(tmp_path, "a", STEADY), _runs(tmp_path, "b", STEADY[::-1]))
    assert suspects(equal, MEASURES, OPTIONS) == []
    assert set(_words(judge_paired([equal], MEASURES, OPTIONS)).values()) == {PASSED}
    wild = [12.0, 35.0, 20.0, 27.0, 15.0]
    noisy = paired_cells(_runs(tmp_path, "c", wild), _runs(tmp_path, "d", wild[::-1]))
    found = {one.path: one for one in judge_paired([noisy], MEASURES, OPTIONS)}
    assert found["tpot_ms.p50"].word == INCONCLUSIVE and "could have gone unseen" in found["tpot_ms.p50"].why
    assert found["ttft_ms.p50"].word == PASSED


def test_runs_that_break_are_a_regression_and_a_baseline_that_breaks_is_not(tmp_path: Path):
    good = _runs(tmp_path, "a", STEADY, backend="vllm")
    for i in range(3):
        write_failed_run(tmp_path, f"b-{i}", "the engine died")
    bad = [
        *(read_run(f"b-{i}", tmp_path) for i in range(3)),
        *_runs(tmp_path, "c", STEADY[:2], backend="vllm"),
    ]
    (broken,) = judge_paired([paired_cells(good, bad)], MEASURES, OPTIONS)
    assert broken.word == REGRESSED and broken.why == "3 of 5 runs are not complete: the engine died"
    (invalid,) = judge_paired([paired_cells(bad, good)], MEASURES, OPTIONS)
    assert invalid.word == INCONCLUSIVE and "of the baseline are not complete" in invalid.why


def test_figures_that_a_failed_check_spoils_carry_no_verdict(tmp_path: Path):
    spoilt = _runs(tmp_path, "b", STEADY, evidence={"client_cpu_share": 1.0})
    assert any(check["ok"] is False for check in spoilt[0].validity)
    found = judge_paired([paired_cells(_runs(tmp_path, "a", STEADY), spoilt)], MEASURES, OPTIONS)
    assert _words(found)["tpot_ms.p50"] == INCONCLUSIVE
    assert _words(found)["memory.kv_per_request_bytes"] == PASSED


def test_other_work_is_refused(tmp_path: Path):
    chat = _runs(tmp_path, "a", STEADY)
    other = _runs(tmp_path, "b", STEADY, fingerprint={"plan_sha256": "another"})
    with pytest.raises(UsageError, match="asked different requests or of another model"):
        paired_cells(chat, other)
    files = [*_runs(tmp_path, "c", STEADY, workload="file"), *_runs(tmp_path, "d", STEADY, workload="rag")]
    with pytest.raises(UsageError, match="both need the same cells"):
        paired_cells(chat, files)


def test_stored_mode_knows_its_floor_from_its_history(tmp_path: Path):
    look = by_cell(_runs(tmp_path, "a", STEADY))
    usual = {
        path: side.values(measure)[0]
        for side in look.values()
        for measure in MEASURES
        for path in [measure.path]
    }

    def history(scatter: float, nights: int):
        factors = [1 + scatter * (-1) ** night for night in range(nights)]
        return lambda cell, path: [usual[path] * factor for factor in factors]

    assert beyond_floor(look, history(0.01, 12), MEASURES, OPTIONS) == []
    assert set(_words(judge_stored([look], [], history(0.01, 12), MEASURES, OPTIONS)).values()) == {PASSED}
    wide = judge_stored([look], [], history(0.3, 12), MEASURES, OPTIONS)
    assert {one.word for one in wide} == {INCONCLUSIVE} and "cannot be told" in wide[0].why
    short = judge_stored([look], [], history(0.01, 4), MEASURES, OPTIONS)
    assert {one.word for one in short} == {INCONCLUSIVE} and "4 of 5 nights" in short[0].why
    slow = by_cell(_runs(tmp_path, "b", [gap * 1.2 for gap in STEADY]))
    assert {path for _, path in beyond_floor(slow, history(0.01, 12), MEASURES, OPTIONS)} == {
        "tpot_ms.p50",
        "output_tokens_per_s",
    }
    worse = _words(judge_stored([slow, slow], [], history(0.01, 12), MEASURES, OPTIONS))
    assert worse["tpot_ms.p50"] == REGRESSED and worse["ttft_ms.p50"] == PASSED
    once = _words(judge_stored([slow, look], [], history(0.01, 12), MEASURES, OPTIONS))
    assert once["tpot_ms.p50"] == PASSED


def test_what_is_said_is_escaped_where_it_is_read(tmp_path: Path):
    hostile = "<b>|\n::error::% \x00"
    first = paired_cells(
        _runs(tmp_path, "a", STEADY, workload=hostile),
        _runs(tmp_path, "b", [gap * 1.2 for gap in STEADY], workload=hostile),
    )
    outcome = Outcome(
        "20261130-010203", "paired", tuple(judge_paired([first, first], MEASURES, OPTIONS)), (hostile,)
    )
    assert outcome.word == REGRESSED and headline(outcome).startswith("Regressed: ")
    text = markdown(outcome, [])
    assert "<b>" not in text and all(line.count(" | ") in (0, 6) for line in text.splitlines())
    for line in annotations(outcome):
        assert line.startswith("::error title=") and line.count("::") == 2 and "\n" not in line
    suite = ElementTree.fromstring(junit(outcome))[0]
    assert suite.get("tests") == "4" and suite.get("failures") == "2"
    assert [case.get("name") for case in suite.iter("testcase") if case.find("failure") is not None] == [
        "Output throughput",
        "TPOT p50",
    ]


def test_a_night_without_figures_has_not_passed():
    assert Outcome("n", "paired", ()).word == INCONCLUSIVE


def test_a_second_look_that_broke_is_no_pass(tmp_path: Path):
    first = paired_cells(_runs(tmp_path, "a", STEADY), _runs(tmp_path, "b", [gap * 1.3 for gap in STEADY]))
    for i in range(5):
        write_failed_run(tmp_path, f"c-{i}", "no memory", backend="openvino")
    broken = [read_run(f"c-{i}", tmp_path) for i in range(5)]
    second = paired_cells(_runs(tmp_path, "d", STEADY), broken)
    (found,) = judge_paired([first, second], MEASURES, OPTIONS)
    assert found.word == REGRESSED and "5 of 5 runs are not complete: no memory" in found.why
    (gone,) = judge_paired([first, {}], MEASURES, OPTIONS)
    assert gone.word == INCONCLUSIVE and "of the baseline" in gone.why


def test_few_runs_that_are_missing_keep_a_night_from_passing(tmp_path: Path):
    four = paired_cells(_runs(tmp_path, "a", STEADY), _runs(tmp_path, "b", STEADY[:4]))
    lost, *figures = judge_paired([four], MEASURES, OPTIONS)
    assert lost.word == INCONCLUSIVE and "1 of 5 runs are not complete" in lost.why
    assert {one.word for one in figures} == {PASSED}
    one = paired_cells(_runs(tmp_path, "c", STEADY), _runs(tmp_path, "d", STEADY[:1]))
    assert [finding.word for finding in judge_paired([one], MEASURES, OPTIONS)] == [REGRESSED]


def test_a_cell_or_a_figure_that_tonight_lacks_is_told(tmp_path: Path):
    both = [*_runs(tmp_path, "a", STEADY), *_runs(tmp_path, "b", STEADY, workload="rag")]
    cells = paired_cells(both, _runs(tmp_path, "c", STEADY))
    words = {one.cell: one.word for one in judge_paired([cells], MEASURES, OPTIONS)}
    assert words == {"chat": PASSED, "rag": REGRESSED}
    runs = _runs(tmp_path, "d", STEADY)
    for run in runs:
        run.summary["memory"]["kv_per_request_bytes"] = None  # type: ignore[index]
    found = judge_paired([paired_cells(_runs(tmp_path, "e", STEADY), runs)], MEASURES, OPTIONS)
    assert _words(found)["memory.kv_per_request_bytes"] == INCONCLUSIVE
    assert _words(found)["tpot_ms.p50"] == PASSED


def test_worse_twice_but_within_the_errors_allowed_is_not_called_a_pass(tmp_path: Path):
    base, worse = [20.0, 21.0, 22.0, 23.0, 24.0], [21.2, 22.2, 23.2, 24.2, 25.2]
    first = paired_cells(_runs(tmp_path, "a", base), _runs(tmp_path, "b", worse))
    found = {one.path: one for one in judge_paired([first, first], MEASURES, OPTIONS)}
    tpot = found["tpot_ms.p50"]
    assert tpot.word == INCONCLUSIVE and "not beyond the errors allowed" in tpot.why


def test_a_history_of_equal_values_does_not_make_a_byte_a_regression(tmp_path: Path):
    look = by_cell(_runs(tmp_path, "a", STEADY))
    (side,) = look.values()

    def history(cell: str, path: str):
        (measure,) = (one for one in MEASURES if one.path == path)
        return [side.values(measure)[0] * (0.999 if measure.path.startswith("memory") else 1.0)] * 12

    words = _words(judge_stored([look, look], [], history, MEASURES, OPTIONS))
    assert words["memory.kv_per_request_bytes"] == PASSED


def test_a_machine_that_drifts_within_runs_loses_no_run_of_a_night_in_turns(tmp_path: Path):
    """It falls on either side alike and shows as noise; a night by itself has no other side that shares it."""
    drifting = {"pace": (Pace(0, 10.0, 7.0), Pace(1, 15.0, 7.0)), "drift_limit": 1.2}
    theirs = _runs(tmp_path, "a", STEADY, evidence=drifting)
    ours = _runs(tmp_path, "b", STEADY[::-1], evidence=drifting)
    assert all(any(c["check"] == "same_pace" and c["ok"] is False for c in run.validity) for run in ours)
    assert set(_words(judge_paired([paired_cells(theirs, ours)], MEASURES, OPTIONS)).values()) == {PASSED}
    slow = _runs(tmp_path, "c", [gap * 1.2 for gap in STEADY], evidence=drifting)
    look = paired_cells(theirs, slow)
    assert _words(judge_paired([look, look], MEASURES, OPTIONS))["tpot_ms.p50"] == REGRESSED
    (side,) = by_cell(ours).values()
    times = [measure for measure in MEASURES if not measure.path.startswith("memory.")]
    assert all(side.spoilt(measure) and not side.values(measure) for measure in times)


def test_more_cells_than_a_night_can_judge_are_told():
    cell = [Finding(f"cell {i}", "ttft_ms.p50", "TTFT p50", "ms", PASSED, "") for i in range(159)]
    assert _beyond_reach(cell[:158], MEASURES, OPTIONS) == []
    (told,) = _beyond_reach(cell, MEASURES, OPTIONS)
    assert told.startswith("No figure of 159 cells could fail") and "gate.repeats" in told


def test_a_machine_slower_in_the_second_look_changes_no_finding(tmp_path: Path):
    """By 30 % for both sides: that is no noise, and no change of the candidate."""

    def looks(name: str, pace: float):
        sides = ([gap * pace for gap in STEADY], [gap * 1.15 * pace for gap in STEADY])
        return paired_cells(
            *(_runs(tmp_path, f"{name}{side}", gaps) for side, gaps in zip("ab", sides, strict=True))
        )

    first = looks("one", 1.0)
    still, moved = (
        {one.path: one for one in judge_paired([first, looks(name, pace)], MEASURES, OPTIONS)}
        for name, pace in (("same", 1.0), ("slow", 1.3))
    )
    assert _words(moved.values()) == _words(still.values())
    tpot = "tpot_ms.p50"
    assert moved[tpot].word == REGRESSED
    assert moved[tpot].visible == pytest.approx(still[tpot].visible) and moved[tpot].p == still[tpot].p
    assert moved[tpot].worsening == pytest.approx(0.15)
    assert moved[tpot].candidate == pytest.approx(1.15 * moved[tpot].baseline)  # what is shown agrees with it
    assert f"p = {moved[tpot].p:.2g}" in moved[tpot].why


def test_figures_of_too_few_sound_runs_are_undecided(tmp_path: Path):
    """Of five runs two may be spoilt, but 3 a side cannot fail a night that judges eight figures."""
    spoilt = {"evidence": {"client_cpu_share": 1.0}}
    cells = {}
    for workload in ("chat", "rag"):
        names = [f"{workload}-{side}" for side in "ab"]
        sides = [
            [
                *_runs(tmp_path, f"{name}-sound", STEADY[:3], workload=workload),
                *_runs(tmp_path, f"{name}-spoilt", STEADY[3:], workload=workload, **spoilt),
            ]
            for name in names
        ]
        cells[workload] = next(iter(paired_cells(*sides).values()))
    found = [one for one in judge_paired([cells], MEASURES, OPTIONS) if one.path == "tpot_ms.p50"]
    assert [one.word for one in found] == [INCONCLUSIVE, INCONCLUSIVE]
    assert all("too few runs that count (3 a side)" in one.why for one in found)
    assert "inf" not in markdown(Outcome("n", "paired", tuple(found)), [])
