"""Two sides of synthetic runs whose figures are known by arithmetic, from the command line to the files."""

import json
from pathlib import Path

import pytest

from harness.compare.__main__ import execute, main, parse
from harness.compare.cells import cells, runs_named
from harness.compare.measures import MEASURES, chosen
from harness.compare.two_sides import judge
from harness.compare.write import html, markdown
from harness.core.errors import RecordError, UsageError
from harness.records.reader import read_run
from tests.support.synthetic_runs import Schedule, write_failed_run, write_run


def _side(folder: Path, name: str, gaps: list[float], **keys: object) -> list[str]:
    ids = [f"{name}-{i}" for i in range(len(gaps))]
    for run, gap in zip(ids, gaps, strict=True):
        write_run(folder, run, Schedule(gap_ms=gap), **keys)
    return ids


def _compared(folder: Path, baseline: list[str], candidate: list[str]):
    sides = [[read_run(run, folder) for run in side] for side in (baseline, candidate)]
    return [judge(cell, MEASURES) for cell in cells(*sides)]


def test_a_slower_candidate_is_slower_by_its_own_measure(tmp_path: Path):
    baseline = _side(tmp_path, "a", [20, 20.2, 19.8, 20.1, 19.9])
    candidate = _side(tmp_path, "b", [24, 24.2, 23.8, 24.1, 23.9])
    (found,) = _compared(tmp_path, baseline, candidate)
    judged = {one.measure.path: one for one in found.judged}
    assert judged["tpot_ms.p50"].verdict.ratio.value == pytest.approx(24 / 20)
    assert judged["tpot_ms.p50"].word == "slower"
    assert judged["output_tokens_per_s"].word == "slower"
    assert judged["ttft_ms.p50"].word == "same"
    assert judged["memory.kv_per_request_bytes"].word == "same"
    assert found.word == "worse"
    (turned,) = _compared(tmp_path, candidate, baseline)
    assert {one.word for one in turned.judged if one.measure.path == "tpot_ms.p50"} == {"faster"}


def test_four_runs_a_side_decide_nothing_and_say_what_would(tmp_path: Path):
    (found,) = _compared(tmp_path, _side(tmp_path, "a", [20] * 4), _side(tmp_path, "b", [40] * 4))
    assert found.word == "inconclusive"
    assert "repeats=5" in found.advice
    assert all(one.verdict.word == "inconclusive" for one in found.judged)


def test_requests_of_a_run_are_its_samples(tmp_path: Path):
    write_run(tmp_path, "a", Schedule(requests=24, jitter=0.1))
    run = read_run("a", tmp_path)
    by_path = {measure.path: measure for measure in MEASURES}
    assert len(by_path["ttft_ms.p50"].samples(run)) == 24
    assert len(by_path["output_tokens_per_s"].samples(run)) == 1
    assert by_path["quality.recall"].samples(run) == []


def test_settings_are_paired_by_their_options_and_by_nothing_else(tmp_path: Path):
    for side in "ab":
        for dtype in ("f16", "int8"):
            write_run(
                tmp_path, f"{side}-{dtype}", config={"backend": {"name": "openvino", "kv_dtype": dtype}}
            )
    write_run(tmp_path, "c-f32", config={"backend": {"name": "openvino", "kv_dtype": "f32"}})
    write_run(tmp_path, "c-int4", config={"backend": {"name": "openvino", "kv_dtype": "int4"}})
    found = _compared(tmp_path, ["a-f16", "a-int8"], ["b-int8", "b-f16"])
    assert [(one.cell.setting, one.cell.candidate[0].id) for one in found] == [
        ("backend.kv_dtype=f16", "b-f16"),
        ("backend.kv_dtype=int8", "b-int8"),
    ]
    with pytest.raises(UsageError, match=r"2 settings of chat .* 2 settings.*backend\.kv_dtype"):
        _compared(tmp_path, ["a-f16", "a-int8"], ["c-f32", "c-int4"])
    (one,) = _compared(tmp_path, ["a-f16"], ["c-f32"])  # one setting a side: compared whatever they are
    assert [(two.name, two.baseline, two.candidate) for two in one.differences] == [
        ("backend.kv_dtype", "f16", "f32")
    ]


def test_versions_and_machines_that_differ_are_listed(tmp_path: Path):
    write_run(tmp_path, "a", fingerprint={"engine": {"openvino": "2026.3.0"}})
    write_run(tmp_path, "b")
    (found,) = _compared(tmp_path, ["a"], ["b"])
    assert [(one.part, one.name, one.baseline, one.candidate) for one in found.differences] == [
        ("context", "engine.openvino", "2026.3.0", "2026.4.1")
    ]


def test_what_cannot_be_compared_is_refused_with_its_reason(tmp_path: Path):
    write_run(tmp_path, "chat")
    write_run(tmp_path, "rag", workload="rag")
    write_run(tmp_path, "longer", Schedule(tokens=32))
    write_failed_run(tmp_path, "broken", "the engine did not start")
    with pytest.raises(UsageError, match="The baseline ran chat, the candidate rag"):
        _compared(tmp_path, ["chat"], ["rag"])
    with pytest.raises(UsageError, match=r"different requests.*workload\.output_tokens 16 and 32"):
        _compared(tmp_path, ["chat"], ["longer"])
    with pytest.raises(RecordError, match=r"candidate has no complete run .*the engine did not start"):
        _compared(tmp_path, ["chat"], ["broken"])
    with pytest.raises(UsageError, match="chat is on both sides"):
        _compared(tmp_path, ["chat"], ["chat"])
    with pytest.raises(RecordError, match="no run 'nothing'"):
        runs_named(["nothing"], tmp_path)


def test_a_sweep_names_all_its_runs(tmp_path: Path):
    for run in ("a", "b"):
        write_run(tmp_path, run, sweep="20261130-042501")
    assert [run.id for run in runs_named(["20261130-042501"], tmp_path)] == ["a", "b"]
    assert [run.id for run in runs_named(["b", "*"], tmp_path)] == ["b", "a"]


def test_what_decides_can_be_chosen_within_bounds():
    measures = chosen(["ttft_ms.p95"], {"": 0.2, "tpot_ms.p50": 0.01})
    assert [one.path for one in measures if one.gating] == ["ttft_ms.p95"]
    effects = {one.path: one.least_effect for one in measures}
    assert effects["tpot_ms.p50"] == 0.01 and effects["ttft_ms.p95"] == 0.2
    assert sum(one.gating for one in chosen(None, {})) == 4
    for gating, effects, words in (
        (["ttft"], {}, "ttft is no figure"),
        ([one.path for one in MEASURES[:5]], {}, "names 5 figures"),
        (None, {"": 1.5}, "least_effect=1.5"),
        (None, {"nothing": 0.1}, "nothing is no figure"),
    ):
        with pytest.raises(UsageError, match=words):
            chosen(gating, effects)


def test_the_command_prints_and_writes_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    _side(tmp_path, "a", [20] * 5)
    _side(tmp_path, "b", [26] * 5)
    where = f"results_dir={tmp_path}"
    out = tmp_path / "compared"
    execute(parse(["baseline=a-*", "candidate=[b-0,b-1,b-2,b-3,b-4]", where, f"out={out}"]))
    table = capsys.readouterr().out
    assert "slower" in table and max(map(len, table.splitlines()[:-1])) <= 80
    record = json.loads((out / "compare.json").read_text())
    (cell,) = record["cells"]
    assert cell["verdict"] == "worse" and len(cell["baseline"]) == 5
    figures = {figure["path"]: figure for figure in cell["figures"]}
    assert figures["tpot_ms.p50"]["ratio"] == pytest.approx(1.3)
    assert main(["baseline=a-*", "candidate=b-*", where, "format=json"]) == 0
    assert json.loads(capsys.readouterr().out) == record
    assert main(["baseline=a-*", "candidate=b-*", where, "format=markdown"]) == 0
    assert capsys.readouterr().out == (out / "compare.md").read_text()


def test_what_records_say_is_shown_and_never_run(tmp_path: Path):
    hostile = "<script>alert(1)</script> | [x](javascript:y) `"
    write_run(tmp_path, "a")
    write_run(tmp_path, "b", fingerprint={"engine": {hostile: hostile}})
    found = _compared(tmp_path, ["a"], ["b"])
    for text in (html(found), markdown(found)):
        assert "<script" not in text
        assert "&lt;script&gt;" in text
    assert "| engine." in markdown(found) and "\\|" in markdown(found)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["candidate=b"], "baseline=… is missing"),
        (["baseline=[]", "candidate=b"], "baseline=… is missing"),
        (["baseline=a", "candidate=b", "format=pdf"], "format=pdf"),
        (["baseline=a", "candidate=b", "least_effect=much"], "least_effect=much is no number"),
        (["baseline=a", "candidate=b", "colour=red"], "'colour' is no key"),
    ],
)
def test_wrong_arguments_get_one_line(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]):
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert words in said and said.count("\n") == 1


def test_a_workload_that_fell_over_is_not_just_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    for workload in ("chat", "rag"):
        write_run(tmp_path, f"a-{workload}", workload=workload)
    write_run(tmp_path, "b-chat")
    write_failed_run(tmp_path, "b-rag", "no memory")
    assert main(["baseline=a-*", "candidate=b-*", f"results_dir={tmp_path}"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "Not compared, baseline: a-rag (the other side has no complete run" in said
    assert "Not compared, candidate: b-rag (failed, no memory)" in said
    out = tmp_path / "compared"
    assert main(["baseline=a-*", "candidate=b-*", f"results_dir={tmp_path}", f"out={out}"]) == 0
    left = json.loads((out / "compare.json").read_text())["left_out"]
    assert [one["run"] for one in left] == ["a-rag", "b-rag"]
    for name in ("compare.md", "compare.html"):
        assert "Not compared, candidate: b-rag (failed, no memory)" in (out / name).read_text()


def test_another_model_is_refused(tmp_path: Path):
    write_run(tmp_path, "a")
    write_run(tmp_path, "b", fingerprint={"model_sha256": "another"})
    with pytest.raises(UsageError, match="different models"):
        _compared(tmp_path, ["a"], ["b"])


def test_a_figure_that_failed_checks_spoil_has_no_verdict(tmp_path: Path):
    baseline = _side(tmp_path, "a", [20.0] * 5)
    candidate = _side(tmp_path, "b", [30.0] * 5, evidence={"client_cpu_share": 1.0})
    (found,) = _compared(tmp_path, baseline, candidate)
    judged = {one.measure.path: one for one in found.judged}
    assert judged["tpot_ms.p50"].word == "inconclusive" and judged["tpot_ms.p50"].spoilt == 5
    assert judged["memory.kv_per_request_bytes"].word == "same"
    assert "**TPOT p50, ms ✗**" in markdown([found]) and "✗: a failed check spoils" in markdown([found])
