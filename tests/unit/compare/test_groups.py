"""Groups of synthetic runs whose figures are known by arithmetic."""

from pathlib import Path

import pytest

from harness.compare.groups import compare
from harness.records.reader import read_run
from harness.report.comparison import comparison_sections
from harness.report.labels import group_labels
from tests.support.synthetic_runs import Schedule, write_failed_run, write_run


def _runs(folder: Path, **gaps_ms: list[float]):
    """One run for each gap: backend=[gap, gap, …]."""
    made = []
    for backend, gaps in gaps_ms.items():
        for i, gap in enumerate(gaps):
            write_run(folder, f"{backend}-{i}", Schedule(gap_ms=gap), backend=backend)
            made.append(f"{backend}-{i}")
    return [read_run(run, folder) for run in made]


def test_five_runs_a_side_decide_and_fewer_do_not(tmp_path: Path):
    runs = _runs(tmp_path, slow=[40, 41, 42, 39, 38], quick=[20, 20.5, 21, 19.5, 19])
    (found,) = compare(runs, group_labels(runs))
    winners = {winner.metric.name: winner for winner in found.winners}
    assert winners["TPOT p50"].best.startswith("quick")
    assert winners["TPOT p50"].verdict.word == "better"
    assert winners["TPOT p50"].verdict.ratio.value == pytest.approx(20 / 40, rel=1e-6)
    assert winners["TTFT p50"].verdict.word == "same"  # all 80 ms
    few = [run for run in runs if run.id[-1] in "012"]
    (found,) = compare(few, group_labels(few))
    assert {winner.verdict.word for winner in found.winners} == {"inconclusive"}


def test_a_side_shows_its_median_and_range(tmp_path: Path):
    runs = _runs(tmp_path, one=[10, 30, 20], two=[50])
    (found,) = compare(runs, group_labels(runs))
    figure = found.sides[0].figures["TPOT p50"]
    assert (figure.middle, figure.low, figure.high, figure.runs) == (20, 10, 30, 3)


def test_what_was_asked_differently_is_not_compared(tmp_path: Path):
    write_run(tmp_path, "a", backend="one", fingerprint={"plan_sha256": "a"})
    write_run(tmp_path, "b", backend="two", fingerprint={"plan_sha256": "b"})
    runs = [read_run(run, tmp_path) for run in ("a", "b")]
    assert compare(runs, group_labels(runs)) == []


def test_seeds_of_one_workload_are_compared_together_where_all_had_them(tmp_path: Path):
    made = []
    for backend in ("one", "two"):
        for seed in (1, 2):
            name = f"{backend}-{seed}"
            write_run(tmp_path, name, backend=backend, fingerprint={"plan_sha256": f"plan {seed}"})
            made.append(name)
    runs = [read_run(run, tmp_path) for run in made]
    (found,) = compare(runs, group_labels(runs))
    assert [side.runs for side in found.sides] == [2, 2]
    few = runs[:3]
    found_few = compare(few, group_labels(few))  # the second engine lacks a plan: only the common one
    assert [[side.runs for side in one.sides] for one in found_few] == [[1, 1]]


def test_an_engine_that_failed_has_its_row_and_reason(tmp_path: Path):
    runs = _runs(tmp_path, one=[10], two=[20])
    write_failed_run(tmp_path, "three-0", "No memory left", backend="three")
    runs.append(read_run("three-0", tmp_path))
    (section,) = comparison_sections(runs, group_labels(runs))
    assert [row.incomplete for row in section.rows] == [[], [], ["failed, No memory left"]]
    assert any("Not decided: 1 run a side" in sentence for sentence in section.sentences)


@pytest.mark.parametrize(("runs", "shown"), [(4, False), (5, True)])
def test_an_interval_is_shown_only_where_runs_are_enough_for_a_verdict(
    tmp_path: Path, runs: int, shown: bool
):
    """Of two runs the bootstrap's 95 % interval is no more than their range."""
    found = _runs(tmp_path, one=[10 + i / 10 for i in range(runs)], two=[20 + i / 10 for i in range(runs)])
    (section,) = comparison_sections(found, group_labels(found))
    assert any("95 % interval" in sentence for sentence in section.sentences) is shown


def test_a_run_that_ended_early_gives_no_figures(tmp_path: Path):
    runs = _runs(tmp_path, one=[10], two=[20])
    write_run(tmp_path, "two-9", Schedule(gap_ms=900), backend="two", status="partial", reason="interrupted")
    runs.append(read_run("two-9", tmp_path))
    (found,) = compare(runs, group_labels(runs))
    assert found.sides[1].figures["TPOT p50"].runs == 1
    assert found.sides[1].incomplete == ("partial, interrupted",)


def test_greedy_tokens_are_compared_with_the_first_group_that_has_some(tmp_path: Path):
    ids = {"one": None, "two": [[1, 2, 3], [4, 5, 6]], "three": [[1, 2, 3], [4, 9, 6]]}
    for backend in ids:
        write_run(tmp_path, backend, backend=backend)
    runs = [read_run(run, tmp_path) for run in ids]
    for run in runs:
        run.summary["quality"]["greedy_ids"] = ids[run.id]  # type: ignore[index]
    (found,) = compare(runs, group_labels(runs))
    assert found.reference is not None and found.reference.startswith("two")
    agreed = [side.agreement for side in found.sides]
    assert agreed[0] is None
    assert agreed[1] is not None and (agreed[1].same, agreed[1].prompts) == (2, 2)
    assert agreed[2] is not None and (agreed[2].same, agreed[2].middle) == (1, 1)
    runs[2].config["quality"] = {"agreement": {"prompt_tokens": 64}}  # type: ignore[index]
    assert compare(runs, group_labels(runs))[0].sides[2].agreement is None  # other texts


def test_a_caveat_stands_in_the_name_even_of_a_run_that_failed(tmp_path: Path):
    write_run(tmp_path, "a", backend="one", fingerprint={"caveats": ["not representative"]})
    write_failed_run(tmp_path, "b", "broken", backend="one")
    write_run(tmp_path, "c", backend="two")
    runs = [read_run(run, tmp_path) for run in ("a", "b", "c")]
    names = group_labels(runs)
    assert names["a"] == names["b"] == "one · chat · not representative"
    assert "not representative" not in names["c"]


def test_what_was_not_equal_is_said(tmp_path: Path):
    runs = _runs(tmp_path, one=[10], two=[20])
    (section,) = comparison_sections(runs, group_labels(runs))
    assert section.sentences[-1] == "Cores, limits, memory, precisions and load were the same for all."
    for run, cores in zip(runs, ([0, 1], [0]), strict=True):
        run.fingerprint["cores"] = {"engine": cores, "client": [3]}  # type: ignore[index]
    (found,) = compare(runs, group_labels(runs))
    assert [(unequal.name, list(unequal.values.values())) for unequal in found.unequal] == [
        ("engine's cores", ["0, 1", "0"])
    ]
    (section,) = comparison_sections(runs, group_labels(runs))
    assert "engine's cores (0, 1: one; 0: two)" in section.sentences[-1]


def test_of_a_server_that_ran_already_nothing_is_claimed(tmp_path: Path):
    """The configuration of its run holds defaults, which are not what it was started with."""
    runs = _runs(tmp_path, one=[10], two=[20])
    runs[1].config["backend"] |= {"base_url": "http://127.0.0.1:8000", "kv_dtype": "int4"}  # type: ignore[index]
    (found,) = compare(runs, group_labels(runs))
    assert [len(found.attached), found.unequal] == [1, ()]
    (section,) = comparison_sections(runs, group_labels(runs))
    said, unknown = section.sentences[-2:]
    assert said == "Client and load were the same for all."
    assert unknown.startswith("Servers that ran already (two): ")
    runs[1].config["load"] |= {"concurrency": 99}  # type: ignore[index]
    (section,) = comparison_sections(runs, group_labels(runs))
    assert "concurrency" in section.sentences[-2] and "Everything else" not in section.sentences[-2]
