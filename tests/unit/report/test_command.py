"""`python -m harness.report`: what it takes, prints and refuses."""

from pathlib import Path

import pytest

from harness.records.reader import read_run
from harness.report.__main__ import folder_name, main
from tests.support.imports import help_of
from tests.support.synthetic_runs import write_run


def test_the_command_reports_named_runs_and_prints_the_path_last(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    write_run(tmp_path, "r1")
    write_run(tmp_path, "r2")
    assert main([f"results_dir={tmp_path}", "runs=[r2, r1]"]) == 0
    last = capsys.readouterr().out.strip().splitlines()[-1]
    assert Path(last).is_file()
    assert Path(last).parent.parent == tmp_path / "reports"
    assert Path(last).is_file()


def test_the_command_without_runs_takes_the_latest_sweep(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    write_run(tmp_path, "r1", sweep="a")
    write_run(tmp_path, "r2", sweep="b")
    assert main([f"results_dir={tmp_path}", f"out={tmp_path / 'here'}"]) == 0
    assert "r1" not in (tmp_path / "here" / "report.html").read_text()
    assert main([f"results_dir={tmp_path}", "action=list"]) == 0
    listed = capsys.readouterr().out.splitlines()[-2:]
    assert [line.split()[:2] for line in listed] == [["r1", "complete"], ["r2", "complete"]]
    assert all(line.endswith("tokens/s") for line in listed)


def test_reports_of_different_selections_do_not_overwrite_each_other(tmp_path: Path):
    for name in ("r1", "r2", "r3"):
        write_run(tmp_path, name, sweep="s1")
    runs = {name: read_run(name, tmp_path) for name in ("r1", "r2", "r3")}
    assert folder_name(list(runs.values())) == "s1"  # the whole sweep: the name it was first reported under
    partial = [
        folder_name([runs["r1"]]),
        folder_name([runs["r1"], runs["r2"]]),
        folder_name([runs["r2"], runs["r1"]]),
    ]
    assert len({"s1", *partial}) == 4


def test_a_list_of_nothing_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main([f"results_dir={tmp_path}", "action=list"]) == 2
    assert "There is no run" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nonsense"], "key=value"),
        (["colour=red"], "Keys: action, runs, results_dir, out"),
        (["action=dance"], "report, list"),
        (["runs=[r7]"], "There is no run 'r7'"),
        ([], "python -m harness"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
):
    assert main([f"results_dir={tmp_path}", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert words in captured.err


def test_the_command_reads_records_only_and_its_help_loads_nothing_heavy():
    found = help_of("harness.report.__main__")
    assert not {"pandas", "matplotlib", "hydra", "aiohttp", "scipy"} & found.modules
    far = ("backends", "workloads", "harness.client", "harness.run")
    assert not [module for module in found.modules if module.startswith(far)]
    assert "runs=[ID,ID]" in found.said
