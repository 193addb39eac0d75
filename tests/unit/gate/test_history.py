"""The history: what is appended is read again, and levels that change are found where they change."""

from pathlib import Path

import numpy as np
import pytest

from harness.core.errors import RecordError, UsageError
from harness.gate.accepted import accepted_side, environment_of
from harness.gate.baselines import Baseline, Key, hardware_class, key_of, read_baseline, write_baseline
from harness.gate.findings import PASSED, REGRESSED, Finding, Outcome
from harness.gate.history import append, change_points, changes, read_history, unchanged
from harness.gate.night import CANDIDATE, new_night
from harness.gate.options import options_from
from harness.records.reader import read_run
from tests.support.synthetic_runs import write_run

KEY = Key("nightly", "openvino", "example-cpu-2-cores")


def _append(
    folder: Path, night: str, value: float, word: str = PASSED, mode: str = "stored", version: str = "1"
):
    finding = Finding("chat", "tpot_ms.p50", "TPOT p50", "ms", word, "", 20.0, value)
    append(folder, KEY, Outcome(night, mode, (finding,)), "n00", "abc", {"openvino": version})


def test_what_is_usual_are_the_nights_since_the_accepted_one_that_did_not_regress(tmp_path: Path):
    assert read_history(tmp_path).empty
    _append(tmp_path, "n00", 20.0)
    _append(tmp_path, "n01", 30.0, REGRESSED)
    _append(tmp_path, "n02", 21.0)
    table = read_history(tmp_path)
    assert unchanged(table, KEY, "chat", "tpot_ms.p50", "n00") == [20.0, 21.0]
    assert unchanged(table, KEY, "chat", "tpot_ms.p50", "n02") == [21.0]
    assert unchanged(table, KEY, "rag", "tpot_ms.p50", "n00") == []
    assert unchanged(table, Key("nightly", "vllm", KEY.hardware), "chat", "tpot_ms.p50", "n00") == []


def test_a_new_level_is_named_with_the_versions_on_both_sides(tmp_path: Path):
    draws = np.random.default_rng(0)
    for night in range(24):
        slow = 1.1 if night >= 14 else 1.0
        value = 20.0 * slow * float(np.exp(draws.normal(0, 0.01)))
        _append(tmp_path, f"n{night:02}", value, mode="paired", version="1" if night < 14 else "2")
    (found,) = changes(read_history(tmp_path), KEY)
    assert (found.last_before, found.first_after) == ("n13", "n14")
    assert found.ratio == pytest.approx(1.1, abs=0.02)
    assert "openvino 1" in found.before and "openvino 2" in found.after
    table = read_history(tmp_path)
    table.loc[table["night"] >= "n14", "accepted"] = "n14"  # a new baseline moves the ratio, and is no change
    assert changes(table, KEY) == []


def test_noise_alone_rarely_has_levels():
    draws = np.random.default_rng(5)
    found = [len(change_points(draws.normal(0, 0.03, 60).tolist())) for _ in range(200)]
    assert np.mean([count > 0 for count in found]) <= 0.02
    assert change_points([0.0] * 30) == [] and change_points([0.0, 1.0]) == []
    assert change_points([0.0] * 10 + [0.5] * 10) == [10]
    assert change_points([0.0] * 10 + [0.5] + [0.0] * 10) == []  # one odd night
    odd = [*draws.normal(0, 0.03, 10), 0.5, *draws.normal(0, 0.03, 10)]
    assert change_points(odd) == []


def test_a_damaged_history_is_not_overwritten(tmp_path: Path):
    (tmp_path / "history.parquet").write_text("not a table")
    with pytest.raises(RecordError, match="is damaged"):
        _append(tmp_path, "n00", 20.0)
    assert (tmp_path / "history.parquet").read_text() == "not a table"


def test_a_baseline_is_kept_by_what_the_command_asks_for(tmp_path: Path):
    key = key_of(["experiment=nightly", "load.concurrency=4", "-m"])
    assert (key.experiment, key.engine) == ("nightly-load-concurrency-4", "openvino")
    assert key == key_of(["load.concurrency=4", "experiment=nightly"])
    assert key_of(["experiment=kv_methods"]).engine == "kvcompress"
    assert key_of(["experiment=nightly", "backend=vllm"]).engine == "vllm"
    assert key_of(["experiment=nightly"], ["backend.kv_dtype=int8"]) != key_of(["experiment=nightly"])
    assert hardware_class({"cpu": "Example CPU @ 2.60GHz", "cores": 2}) == "example-cpu-2-60ghz-2-cores"
    assert hardware_class({"gpus": ["NVIDIA L4", "NVIDIA L4"]}) == "nvidia-l4-x2"
    baseline = Baseline("n00", "2026-11-30T00:00:00+00:00", "/env", "abc", {"openvino": "1"}, {"chat": ["p"]})
    path = write_baseline(tmp_path, key, baseline)
    assert read_baseline(tmp_path, key) == baseline
    assert read_baseline(tmp_path, Key("other", "openvino", "cpu")) is None
    path.write_text("{")
    with pytest.raises(RecordError, match="is no baseline this version reads"):
        read_baseline(tmp_path, key)


def test_the_accepted_version_is_started_from_its_environment_or_said_to_be_gone(tmp_path: Path):
    with pytest.raises(UsageError, match=r"Nothing was accepted yet for nightly.*gate\.accept=true"):
        accepted_side(None, KEY)
    python = tmp_path / "environment" / "bin" / "python"
    accepted = Baseline("n00", "", str(python.parent.parent), "")
    with pytest.raises(UsageError, match="is gone"):
        accepted_side(accepted, KEY)
    python.parent.mkdir(parents=True)
    python.touch()
    assert accepted_side(accepted, KEY) == [f"backend.python={python}"]
    with pytest.raises(UsageError, match="own environment"):
        accepted_side(Baseline("n00", "", "", ""), KEY)


def test_the_environment_of_a_run_is_that_of_its_engine(tmp_path: Path):
    write_run(tmp_path, "own")  # "python" alone names none
    command = ["PYTHONPATH=/x/bin/python3", "/environments/vllm-cpu-1/bin/trtllm-serve", "serve"]
    write_run(tmp_path, "apart", launch={"speed": command})
    assert environment_of([read_run("own", tmp_path)]) == ""
    assert environment_of([read_run("apart", tmp_path)]) == "/environments/vllm-cpu-1"


def test_nights_have_folders_of_their_own(tmp_path: Path):
    night = new_night(tmp_path, ["workload=chat"])
    assert night.results(CANDIDATE, 1) == tmp_path / "nights" / night.id / "look-1" / "candidate"
    assert night.runs(CANDIDATE, 1) == []


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ("gate.mode=both", "gate.mode=both is unknown"),
        ("gate.repeats=3", "at least 5 runs a side"),
        ("gate.repeats=many", "repeats"),
        ("gate.least_effect=3", "between 0 and 1"),
        ("gate.nothing=1", "nothing"),
        ("gate.gating=[ttft_ms.p50,quality.rag]", r"quality\.rag cannot decide.*harness\.compare"),
        ("gate.gating=[quality.perplexity]", r"quality\.perplexity cannot decide"),
        ("gate.suspicion=0.0039", r"no p below 0\.004"),  # of 252 orders of 5 and 5 runs
        ("gate.false_alarms=6e-5", r"no p below 1\.6e-05"),  # a fourth of it is less than 1 / 252²
        ("repeats=5", r"Use gate\.repeats"),
        ("results_dir=x", r"Use gate\.folder"),
    ],
)
def test_wrong_options_get_one_line(argument: str, words: str):
    with pytest.raises(UsageError, match=words) as caught:
        options_from([argument])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "arguments",
    [
        ["gate.suspicion=0.004"],
        ["gate.false_alarms=6.4e-5"],
        ["gate.false_alarms=1.6e-5", "gate.gating=[ttft_ms.p50]"],
        ["gate.suspicion=0.0039", "gate.repeats=6"],
        ["gate.suspicion=0.0039", "gate.mode=stored"],  # which asks for no order of runs
    ],
)
def test_limits_that_a_night_can_reach_are_taken(arguments: list[str]):
    options_from(arguments)
