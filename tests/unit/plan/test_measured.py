from pathlib import Path

import pytest

from harness.core.errors import UsageError
from harness.plan import words
from harness.plan.composing import options_from
from harness.plan.measured import compare, expected, typical_ratio
from harness.plan.planning import setting_of
from harness.plan.roofline import speeds
from harness.plan.setting import Setting
from harness.records.reader import Run, read_run
from tests.support.synthetic_runs import Schedule, write_failed_run, write_run

SERVED = {"model": {"name": "smollm2-135m"}}
SAME = {"plan_sha256": "p" * 64}


def setting(*more: str) -> Setting:
    return setting_of(options_from(["model=smollm2-135m", "hardware=l4", *more]))


def a_run(folder: Path, name: str, schedule: Schedule, kv_dtype: str | None = "f16") -> Run:
    backend = {"name": "openvino", "dtype": "f32", "kv_dtype": kv_dtype}
    write_run(folder, name, schedule, config=SERVED | {"backend": backend}, fingerprint=SAME)
    return read_run(name, folder)


def test_a_run_is_held_against_the_bound_of_its_own_load(tmp_path: Path):
    schedule = Schedule(prompt_tokens=300, tokens=16, slots=4, ttft_ms=80, gap_ms=20, lag_ms=0)
    (one,) = compare([a_run(tmp_path, "r1", schedule)], setting("hardware.tflops_f32=1"))
    assert (one.users, one.prompt_tokens, one.output_tokens) == (4, 300, 16)
    own = setting("hardware.tflops_f32=1", "weight_dtype=f32", "kv_dtype=f16")
    bound = speeds(own, 4, 300, 16)
    assert bound.ttft_s and bound.tpot_s and bound.tokens_per_s
    assert one.ratio("ttft_s") == pytest.approx(0.080 / bound.ttft_s)
    assert one.ratio("tpot_s") == pytest.approx(0.020 / bound.tpot_s)
    assert one.figures["tokens_per_s"][0] == pytest.approx(bound.tokens_per_s)
    assert one.figures["kv_bytes"][0] == (300 + 8) * 23_040
    assert not one.beaten
    assert "TTFT 80.0 ms" in words.comparison_lines([one])[0]


def test_the_plan_takes_what_the_runs_took(tmp_path: Path):
    runs = [a_run(tmp_path, f"r{ttft}", Schedule(ttft_ms=ttft, lag_ms=0)) for ttft in (50, 100, 400)]
    s = setting("hardware.tflops_f32=1")
    found = compare(runs, s)
    ratios = [one.ratio("ttft_s") for one in found]
    assert typical_ratio(found, "ttft_s") == ratios[1]
    bound = speeds(s, 2, 1000, 100)
    likely = expected(bound, found)
    assert bound.ttft_s and likely.ttft_s and ratios[1]
    assert likely.ttft_s == pytest.approx(bound.ttft_s * ratios[1])


def test_a_run_without_a_named_kv_precision_is_taken_with_the_plans(tmp_path: Path):
    run = a_run(tmp_path, "r1", Schedule(), kv_dtype=None)
    (one,) = compare([run], setting("kv_dtype=int8"))
    assert one.figures["kv_bytes"][0] == (300 + 8) * 23_040 / 2


def test_a_run_that_is_faster_than_the_bound_says_so(tmp_path: Path):
    slow = setting("hardware=cpu", "hardware.bandwidth_gb_s=0.1", "hardware.tflops_f32=0.001")
    (one,) = compare([a_run(tmp_path, "r1", Schedule())], slow)
    assert one.beaten
    assert "set too low" in words.comparison_lines([one])[0]


def test_without_the_hardwares_figures_only_memory_is_compared(tmp_path: Path):
    (one,) = compare([a_run(tmp_path, "r1", Schedule())], setting("hardware=cpu"))
    assert one.ratio("ttft_s") is None
    assert one.ratio("kv_bytes") is not None


def test_runs_that_cannot_be_held_against_the_plan(tmp_path: Path):
    run = a_run(tmp_path, "r1", Schedule())
    with pytest.raises(UsageError, match="served smollm2-135m, the plan is of mistral-7b"):
        compare([run], setting("model=mistral-7b"))
    write_run(tmp_path, "r2", config=SERVED, fingerprint={"plan_sha256": "q" * 64})
    with pytest.raises(UsageError, match="asked different things"):
        compare([run, read_run("r2", tmp_path)], setting())
    write_failed_run(tmp_path, "r3", "it died")
    with pytest.raises(UsageError, match="r3 failed"):
        compare([read_run("r3", tmp_path)], setting())
