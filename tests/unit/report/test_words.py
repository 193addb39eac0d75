"""Labels, the answer, the terminal's table."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from harness.records.reader import Run, list_runs, read_run
from harness.report.answer import answer, machine_of, one_sentence
from harness.report.labels import differing_options, group_labels, labels
from harness.report.terminal import advice, summary_table
from tests.support.synthetic_runs import Schedule, write_failed_run, write_run


def printed(runs: list[Run], width: int = 80) -> str:
    stream = io.StringIO()
    Console(file=stream, width=width, color_system=None).print(summary_table(runs))
    return stream.getvalue()


@pytest.fixture
def runs(tmp_path: Path) -> list[Run]:
    """Two KV dtypes asked the same; the second is twice as fast."""
    same = {"plan_sha256": "p" * 64}
    slow, fast = Schedule(ttft_ms=100, gap_ms=40), Schedule(ttft_ms=50, gap_ms=20, lag_ms=0.25)
    backend = {"name": "openvino", "dtype": "f32"}
    write_run(tmp_path, "r1", slow, config={"backend": backend | {"kv_dtype": "f16"}}, fingerprint=same)
    write_run(tmp_path, "r2", fast, config={"backend": backend | {"kv_dtype": "int8"}}, fingerprint=same)
    return [read_run("r1", tmp_path), read_run("r2", tmp_path)]


def test_the_terminals_table_has_the_cost_where_there_is_a_price(runs: list[Run], tmp_path: Path):
    assert "cost" not in printed(runs)
    write_run(tmp_path, "r3", price=3.6)
    priced = read_run("r3", tmp_path)
    amount = priced.summary["cost"]["per_million_output_tokens"]
    assert f" {amount:.2f} " in printed([*runs, priced])


def test_labels_say_what_tells_runs_apart(runs: list[Run]):
    assert labels(runs) == {"r1": "kv_dtype=f16", "r2": "kv_dtype=int8"}
    assert differing_options(runs) == ["backend.kv_dtype"]


def test_another_engine_brings_the_names_back(runs: list[Run], tmp_path: Path):
    write_run(tmp_path, "r3", backend="vllm")
    found = labels([*runs, read_run("r3", tmp_path)])
    assert found["r1"] == "openvino · chat · kv_dtype=f16"
    assert found["r3"] == "vllm · chat"


def test_repeats_are_numbered_and_seeds_share_a_group(tmp_path: Path):
    for name, seed in (("r1", 0), ("r2", 0), ("r3", 1)):
        write_run(tmp_path, name, Schedule(seed=seed))
    three = [read_run(name, tmp_path) for name in ("r1", "r2", "r3")]
    assert list(labels(three).values()) == [
        "seed=0 · #1",
        "seed=0 · #2",
        "seed=1",
    ]
    assert set(group_labels(three).values()) == {"openvino · chat"}


def test_of_many_options_a_label_names_those_that_are_not_usual(tmp_path: Path):
    usual = {
        "evict": "none",
        "quant": "none",
        "recent": 32,
        "spread": "uniform",
        "budget": {"fraction": None},
    }
    half = {"budget": {"fraction": 0.5}}
    for name, kv in (
        ("exact", {}),
        ("snapkv", half | {"evict": "snapkv"}),
        ("auto", half | {"evict": "auto", "spread": "retrieval"}),
        ("packed", {"quant": "int8", "recent": 8}),
    ):
        write_run(tmp_path, name, config={"backend": {"name": "kvcompress", "kv": usual | kv}})
    runs = [read_run(name, tmp_path) for name in ("exact", "snapkv", "auto", "packed")]
    assert labels(runs) == {
        "exact": "evict=none",
        "snapkv": "fraction=0.5 · evict=snapkv",
        "auto": "fraction=0.5 · evict=auto · spread=retrieval",
        "packed": "quant=int8 · recent=8",
    }
    # An engine whose usual values nobody knows keeps them all.
    write_run(tmp_path, "other", config={"backend": {"name": "gone", "kv": usual}})
    write_run(
        tmp_path,
        "others",
        config={
            "backend": {
                "name": "gone",
                "kv": usual | {"evict": "h2o", "quant": "int4", "recent": 1, "spread": "x"},
            }
        },
    )
    found = labels([read_run(name, tmp_path) for name in ("other", "others")])
    assert found["other"] == "evict=none · quant=none · recent=32 · spread=uniform"


def test_an_engine_seed_that_follows_the_runs_is_no_option_of_its_own(tmp_path: Path):
    for name, seed in (("r1", 0), ("r2", 1)):
        write_run(tmp_path, name, config={"seed": seed, "backend": {"name": "openvino", "seed": seed}})
    two = [read_run(name, tmp_path) for name in ("r1", "r2")]
    assert list(labels(two).values()) == ["seed=0", "seed=1"]
    assert set(group_labels(two).values()) == {"openvino · chat"}


def test_the_faster_is_named_with_its_ratio_but_no_verdict(runs: list[Run]):
    expected = runs[1].summary["output_tokens_per_s"] / runs[0].summary["output_tokens_per_s"]
    assert expected == pytest.approx(2, rel=1e-3)
    sentence = one_sentence(runs)
    assert sentence.startswith("kv_dtype=int8 gave 2.00 times the output tokens per second of")
    assert any("no verdict" in caution for caution in answer(runs).cautions)


def test_different_workloads_are_described_and_not_ranked(tmp_path: Path):
    write_run(tmp_path, "r1", workload="chat")
    write_run(tmp_path, "r2", workload="rag")
    two = [read_run("r1", tmp_path), read_run("r2", tmp_path)]
    assert "times" not in one_sentence(two)
    assert one_sentence(two).startswith("Output tokens per second: ")
    assert any("not a ranking" in caution for caution in answer(two).cautions)


def test_different_models_are_not_ranked(tmp_path: Path):
    for name, model in (("r1", "a"), ("r2", "b")):
        fingerprint = {"plan_sha256": "same plan", "model_sha256": model}
        write_run(tmp_path, name, backend=f"engine-{model}", fingerprint=fingerprint)
    two = [read_run("r1", tmp_path), read_run("r2", tmp_path)]
    assert "times" not in one_sentence(two)
    assert any("different models" in caution for caution in answer(two).cautions)


def test_seeds_repeat_a_comparison_and_do_not_make_it_unequal(tmp_path: Path):
    for seed in (0, 1):
        for backend, gap_ms in (("openvino", 20), ("vllm", 10)):
            plan = {"plan_sha256": f"plan of seed {seed}"}
            schedule = Schedule(seed=seed, gap_ms=gap_ms)
            write_run(tmp_path, f"r{seed}-{backend}", schedule, backend=backend, fingerprint=plan)
    runs = [read_run(name, tmp_path) for name in list_runs(tmp_path)]
    assert one_sentence(runs).startswith("vllm · chat gave")
    assert "no verdict" in one_sentence(runs)
    one_sided = [run for run in runs if run.id != "r1-vllm"]
    assert "times" not in one_sentence(one_sided)


def test_one_run_is_told_with_its_own_figures(tmp_path: Path):
    write_run(tmp_path, "r1", Schedule(ttft_ms=80, gap_ms=20))
    assert one_sentence([read_run("r1", tmp_path)]) == (
        "openvino · chat: first token after 80.0 ms (95 of 100 within 80.0 ms), then a token every 20.0 ms; "
        "168 tokens/s in all. Memory: 6.91 MB of KV cache a request; 909 MB at the peak."
    )


def test_where_everything_failed_the_reason_is_the_answer(tmp_path: Path):
    write_failed_run(tmp_path, "r1", "The engine died.")
    run = read_run("r1", tmp_path)
    assert one_sentence([run]) == "No run was measured: The engine died."
    assert "1 of them failed" in answer([run]).what


def test_the_machine_in_words(runs: list[Run]):
    assert machine_of(runs[0]) == "Example CPU @ 2.60GHz (2 cores, 25.8 GB of memory, no GPU)"


def test_the_table_fits_eighty_columns_and_needs_no_colour(runs: list[Run], tmp_path: Path):
    write_failed_run(tmp_path, "r3", "The engine died.")
    write_run(tmp_path, "r4", Schedule(errors={1: "timeout"}))
    text = printed([*runs, read_run("r3", tmp_path), read_run("r4", tmp_path)])
    assert max(len(line) for line in text.splitlines()) <= 80
    assert "\x1b" not in text
    assert "100–100" in text  # p50 and p95 of the constant schedule
    assert "failed" in text
    assert "✗ 1" in text


def test_a_failed_check_says_what_was_found_and_what_to_do(tmp_path: Path):
    write_run(tmp_path, "r1", Schedule(errors={1: "timeout"}))
    write_run(tmp_path, "r2")
    (line,) = advice([read_run("r1", tmp_path), read_run("r2", tmp_path)])
    assert "1" in line
    assert "(limit 0" in line
    assert len(line) > 60  # the cure stands in it too


def test_markup_in_a_configuration_is_shown_as_it_is(tmp_path: Path):
    write_run(tmp_path, "r1", backend="[red]x[/red]")
    text = "".join(printed([read_run("r1", tmp_path)], width=200).split())
    assert "[red]x[/red]" in text


def test_many_settings_are_told_as_a_range_and_spoilt_figures_are_mentioned(tmp_path: Path):
    for number, gap_ms in enumerate((10, 20, 30, 40)):
        errors = {1: "timeout"} if number == 3 else {}
        write_run(tmp_path, f"r{number}", Schedule(gap_ms=gap_ms, errors=errors), workload=f"w{number}")
    runs = [read_run(name, tmp_path) for name in list_runs(tmp_path)]
    assert one_sentence(runs).startswith("4 runs of 4 settings: ")
    assert one_sentence(runs).endswith("Figures marked ✗ are spoilt by a failed check.")
    assert "✗" not in one_sentence(runs[:3])
