from dataclasses import replace
from pathlib import Path

import pytest

from harness.records.reader import Run, read_run
from harness.report.answer import answer, one_sentence
from harness.report.context_scaling import (
    outside_studies,
    scaling_headlines,
    scaling_sections,
    scaling_words,
)
from harness.report.memory import memory_figures, memory_words, predicted_bytes_per_token
from harness.report.write import write_report
from tests.support.synthetic_runs import Schedule, write_run
from tests.unit.compare.test_context_scaling import LENGTHS, written

GEOMETRY = {
    "layers": 30, "heads": 9, "kv_heads": 3, "head_dim": 64, "vocabulary": 49152, "context_length": 8192
}  # fmt: skip


def run(
    folder: Path, name: str, tokens: int, slots: int = 4, weights: float = 271e6, **backend: object
) -> Run:
    schedule = Schedule(requests=8, tokens=48, prompt_tokens=tokens, slots=slots)
    path = write_run(
        folder,
        name,
        schedule,
        fingerprint={"geometry": GEOMETRY},
        config={"backend": {"name": "openvino", "kv_dtype": "f16"} | backend},
    )
    made = read_run(path)
    known = made.summary["memory"] | {"weights_bytes": weights, "kv_in_peak": "used"}
    known["overhead_bytes"] = known["peak_process_bytes"] - weights - 40e6
    return replace(made, summary={**made.summary, "memory": known})


def test_the_geometrys_line_is_that_of_the_precision_in_force(tmp_path: Path) -> None:
    assert predicted_bytes_per_token(run(tmp_path, "a", 300)) == 23_040
    assert predicted_bytes_per_token(run(tmp_path, "b", 300, kv_dtype="f32")) == 46_080
    assert predicted_bytes_per_token(run(tmp_path, "c", 300, kv={"quant": "int8"})) == 11_520
    assert predicted_bytes_per_token(run(tmp_path, "d", 300, kv={"quant": "int3"})) is None
    mixed = {"quant": "int8", "value_quant": "int4"}
    assert predicted_bytes_per_token(run(tmp_path, "e", 300, kv=mixed)) == (11_520 + 5_760) / 2
    assert predicted_bytes_per_token(read_run(write_run(tmp_path, "old"))) is None


def test_figures_of_memory_have_the_samples_and_the_parts(tmp_path: Path) -> None:
    runs = [run(tmp_path, "short", 300), run(tmp_path, "long", 900, slots=2)]
    found = memory_figures(list(enumerate(runs)), {"short": "300 tokens", "long": "900 tokens"})
    figures = {figure.name: figure for figure in found}
    assert set(figures) == {"kv-length", "kv-requests", "memory-parts"}
    assert figures["kv-length"].series == [0, 1]
    lengths = figures["kv-length"].data
    assert (lengths["kv_bytes"] / (lengths["length"] * 23_040)).between(0.8, 1.05).all()
    parts = figures["memory-parts"].data.set_index("setting")
    assert parts.loc["300 tokens", "KV cache"] == pytest.approx(40e6)
    assert (
        parts.loc["300 tokens", ["weights", "KV cache", "overhead"]].sum() == parts.loc["300 tokens", "peak"]
    )
    assert "23.0 kB a token" in figures["kv-length"].svg


def test_records_without_what_they_need_have_no_such_figure(tmp_path: Path) -> None:
    old = read_run(write_run(tmp_path, "old"))
    names = [figure.name for figure in memory_figures([(0, old)], {"old": "old"})]
    assert "memory-parts" not in names
    for key in ("weights_bytes", "overhead_bytes", "kv_per_token_bytes", "kv_share_of_memory"):
        del old.summary["memory"][key]
    assert [figure.name for figure in memory_figures([(0, old)], {"old": "old"})] == names
    assert "at the peak" in memory_words([old])
    assert memory_words([read_run(write_run(tmp_path, "nothing", summary={}))]) == ""


def test_the_section_says_in_words_how_each_figure_grows(tmp_path: Path) -> None:
    runs = [written(tmp_path, tokens, fingerprint={"geometry": GEOMETRY}) for tokens in LENGTHS]
    runs += [written(tmp_path, 256, 8, running) for running in (8, 1)]
    (section,) = scaling_sections(runs)
    assert [figure.name for figure in section.figures] == [
        "scaling-memory",
        "scaling-times",
        "scaling-batching",
    ]
    memory, wait, rate, batching, doubts = section.sentences
    assert "context^1.0" in memory
    assert "not exponentially" in memory
    assert "the model's geometry gives 23.0 kB" in memory
    assert "larger one from 6," in wait
    assert "output tokens/s" in rate
    assert "With 8 requests of 256 tokens at once" in batching
    assert doubts.startswith(
        f"{len(LENGTHS)} of these {len(runs)} runs failed a validity check: too few requests"
    )
    (headline,) = scaling_headlines(runs)
    assert headline.startswith("openvino: KV memory grows with context^1.0")
    assert "at 8 at once" in headline
    assert answer(runs).figures == [("", headline)]  # and no line for each of its runs
    assert one_sentence(runs).startswith("KV memory grows")
    assert scaling_words(runs) == section.sentences
    other = read_run(write_run(tmp_path, "chat"))
    assert outside_studies([*runs, other]) == [other]
    page = write_report(runs, tmp_path / "report")
    assert section.title in page.read_text()
    assert (page.parent / "data" / "scaling-times.csv").exists()
