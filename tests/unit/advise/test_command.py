"""The command as a whole: what it prints, writes and refuses."""

import json
from pathlib import Path

import pytest

from harness.advise.__main__ import help_text, main
from tests.support.synthetic_runs import Schedule, write_failed_run, write_run


@pytest.fixture(autouse=True)
def _eighty_columns(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "80")


def two_settings(folder: Path, **changes: object) -> None:
    backend = {"name": "openvino", "dtype": "f32", "kv_dtype": "f16"}
    for name, dtype, gap in (("r1", "f16", 20), ("r2", "int8", 16)):
        write_run(
            folder,
            name,
            Schedule(requests=60, gap_ms=gap),
            config={"backend": backend | {"kv_dtype": dtype}},
            **{"price": 0.5, **changes},  # type: ignore[arg-type]
        )


def test_the_advice_is_printed_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    two_settings(tmp_path)
    out = tmp_path / "advice"
    assert main([f"results_dir={tmp_path}", "runs=['r*']", "slo.ttft_p50_ms=100", f"out={out}"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("kv_dtype=int8: ")
    assert "cheaper than kv_dtype=f16" in printed.replace("\n", " ")
    plain = [line for line in printed.splitlines() if "python -m" not in line and str(tmp_path) not in line]
    assert all(len(line) <= 80 for line in plain)
    (sweep,) = [line.strip() for line in printed.splitlines() if "repeats=5" in line]
    assert sweep.startswith("python -m harness -m ") and "backend.kv_dtype=int8,f16" in sweep
    record = json.loads((out / "advice.json").read_text())
    assert record["best"] == "kv_dtype=int8"
    assert record["against_next"]["word"] == "inconclusive"
    assert record["against_next"]["ratio"]["value"] < 1
    assert [limit["met"] for one in record["ranked"] for limit in one["slo"]] == [True, True]
    markdown = (out / "advice.md").read_text()
    assert "| kv_dtype=int8 | " in markdown
    assert sweep in markdown


def test_labels_do_not_become_markup(tmp_path: Path):
    write_run(tmp_path, "r1", backend="<b>|`x`</b>")
    assert main([f"results_dir={tmp_path}", f"out={tmp_path}"]) == 0
    markdown = (tmp_path / "advice.md").read_text()
    assert "<b>" not in markdown
    assert "`x`" not in markdown


def test_several_workloads_need_a_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    write_run(tmp_path, "r1", workload="chat")
    write_run(tmp_path, "r2", workload="rag")
    arguments = [f"results_dir={tmp_path}", "runs=['r*']"]
    assert main(arguments) == 2
    assert "workload=chat or workload=rag" in capsys.readouterr().err
    assert main([*arguments, "workload=rag"]) == 0
    assert main([*arguments, "workload=summarization"]) == 2
    assert "They are of: chat, rag" in capsys.readouterr().err


def test_runs_that_have_nothing_in_common(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    write_run(tmp_path, "r1", backend="openvino")
    write_run(tmp_path, "r2", Schedule(tokens=8), backend="vllm")
    write_run(tmp_path, "s1", fingerprint={"model": "other"}, config={"model": {"name": "other"}})
    write_failed_run(tmp_path, "t1", "It ran out of memory.")
    for patterns, status, words in (
        ("r*", 2, "asked different requests"),
        ("[rs]1", 2, "served 2 models"),
        ("t*", 1, "measured anything"),
    ):
        assert main([f"results_dir={tmp_path}", f"runs=['{patterns}']"]) == status
        assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        ([], 1, "There is no run in"),
        (["runs=[r9]"], 1, "no run 'r9'"),
        (["hardware.price_per_hour=0"], 2, "a price is above 0"),
        (["slo.ttft_p96_ms=3"], 2, "Did you mean slo.ttft_p9"),
        (["slo.ttft_p95_ms=0"], 2, "above 0"),
        (["slo.ttft_p95_ms=soon"], 2, "a number"),
        (["slo=strict"], 2, "Choices: interactive, none"),
        (["loss=big"], 2, "Choices: any, small"),
        (["loss.perplexity=-1"], 2, "not below 0"),
        (["attainment=2"], 2, "at most 1"),
        (["slo"], 2, "KEY=VALUE"),
    ],
)
def test_errors_are_one_line(
    arguments: list[str], status: int, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert main([f"results_dir={tmp_path}", *arguments]) == status
    err = capsys.readouterr().err
    assert err.startswith("Error: ")
    assert err.count("\n") == 1
    assert words in err


def test_help_names_every_choice_within_80_columns():
    text = help_text()
    assert all(f"    {name}" in text for name in ("interactive", "none", "small", "any"))
    assert max(map(len, text.splitlines())) <= 80
