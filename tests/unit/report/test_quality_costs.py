"""A report's verdicts on settings, from records whose quality is known."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from harness.compare.conf_files import usual_losses
from harness.compare.task_costs import setting_costs
from harness.records.reader import Run, read_run
from harness.report.labels import setting_labels
from harness.report.quality_costs import cost_lines, cost_sections
from harness.report.write import write_report
from tests.support.synthetic_runs import write_run

ENGINE = {"name": "kvcompress", "device": "cpu", "dtype": "f32", "kv_dtype": "f32", "weight_dtype": None}
EXACT = {"evict": "none", "quant": "none", "share": "none"}


def shares(task: str, right: int, of: int = 200, chance: float = 0.25) -> dict[str, Any]:
    low = right / of - 0.07
    values = [1] * right + [0] * (of - right)
    return {
        task: right / of,
        f"{task}_right": values,
        f"{task}_chance": chance,
        f"{task}_interval": [low, 1.0],
    }


def text(loss: float) -> dict[str, Any]:
    sums = [250.0 + loss + window for window in range(12)]
    return {
        "perplexity": math.exp(sum(sums) / 1200),
        "window_nll": sums,
        "window_tokens": [100] * 12,
        "text_sha256": "t",
    }


def recorded(folder: Path, name: str, workload: str, quality: dict[str, Any], **backend: Any) -> Run:
    write_run(
        folder,
        name,
        workload=workload,
        perplexity=None,
        config={"backend": ENGINE | {"kv": EXACT} | backend, "quality": {"rag": {}, "recall": {}}},
    )
    run = read_run(name, folder)
    run.summary["quality"] = quality  # type: ignore[index]
    return run


def told(run: Run, shift: float) -> Run:
    """Give the run distributions over 30 tokens, `shift` away from the same ones for all."""
    draws = np.random.default_rng(1)
    logits = draws.normal(size=(8, 4, 30)) + shift * np.random.default_rng(2).normal(size=(8, 4, 30))
    values = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    rows = [(prompt, position, token, value) for (prompt, position, token), value in np.ndenumerate(values)]
    run.__dict__["next_tokens"] = pd.DataFrame(rows, columns=["prompt", "position", "token", "log_prob"])
    return run


@pytest.fixture
def runs(tmp_path: Path) -> list[Run]:
    packed = {"kv": EXACT | {"quant": "int4"}}
    return [
        told(recorded(tmp_path, "r1", "chat", shares("reasoning", 60)), 0),
        recorded(tmp_path, "r2", "rag", shares("rag", 190)),
        recorded(tmp_path, "r3", "summarization", shares("summary", 120, chance=0.0) | text(0)),
        told(recorded(tmp_path, "r4", "chat", shares("reasoning", 50), **packed), 0.01),
        recorded(tmp_path, "r5", "rag", shares("rag", 120), **packed),
        recorded(tmp_path, "r6", "summarization", shares("summary", 115, chance=0.0) | text(1), **packed),
        recorded(tmp_path, "r7", "rag", shares("rag", 188), weight_dtype="int8"),
    ]


def test_a_row_says_what_it_is_safe_for(runs: list[Run]):
    row, weights = setting_costs(runs, setting_labels(runs), usual_losses())
    assert (row.axis, weights.axis) == ("kv", "weights")
    assert {name: found.verdict for name, found in row.classes.items()} == {
        "chat": "safe",
        "rag": "loses",
        "summarization": "inconclusive",
        "reasoning": "uninformative",
    }
    assert row.kv_memory == row.throughput == 1
    line, other = cost_lines(runs)
    assert "quant=int4: safe for chat, not for rag; inconclusive for summarization: the smallest loss" in line
    assert line.endswith("uninformative for reasoning: full precision is not above chance.")
    assert "weight_dtype=int8: inconclusive for rag: the smallest loss these data could show is" in other


def test_the_table_stands_in_the_report_and_its_data_beside_it(runs: list[Run], tmp_path: Path):
    page = write_report(runs, tmp_path / "report").read_text()
    assert "What each KV setting costs in quality, by task" in page
    assert "RAG answers −35.0 points (" in page and "perplexity +1.0 % (" in page
    data = pd.read_csv(tmp_path / "report" / "data" / "quality_costs_kv.csv")
    rag = data[data["figure"] == "RAG answers"].iloc[0]
    assert rag["lost"] == pytest.approx(0.35) and rag["lost_low"] < 0.35 < rag["lost_high"]
    assert set(data["unit"]) == {"points", "relative", "nats"}


def test_without_a_baseline_there_is_no_table(runs: list[Run]):
    assert cost_sections(runs[3:6]) == []
    assert cost_sections([runs[1]]) == []


def test_an_engine_that_tells_little_is_not_called_safe(runs: list[Run]):
    for run in (runs[0], runs[3]):
        table = run.next_tokens
        run.__dict__["next_tokens"] = table[table["token"] == 0]
    row = setting_costs(runs, setting_labels(runs), usual_losses())[0]
    assert row.classes["chat"].verdict == "inconclusive"
    assert "of the probability, so its bound excludes no loss" in cost_lines(runs)[0]


def test_no_difference_at_all_means_that_the_cache_was_not_read(runs: list[Run]):
    told(runs[3], 0)
    row = setting_costs(runs, setting_labels(runs), usual_losses())[0]
    assert row.classes["chat"].verdict == "not seen"
    assert "not measured for chat: both computed the very same: nothing that differs" in cost_lines(runs)[0]


def test_of_equally_long_runs_the_worst_decides(runs: list[Run], tmp_path: Path):
    """A mild repeat, before or after, does not hide a loss."""
    mild = recorded(tmp_path, "r0", "rag", shares("rag", 190), kv=EXACT | {"quant": "int4"})
    for order in ([mild, *runs], [*runs, mild]):
        row = setting_costs(order, setting_labels(order), usual_losses())[0]
        assert row.classes["rag"].verdict == "loses"


def test_continuations_of_other_texts_are_not_compared(runs: list[Run]):
    runs[3].config["quality"]["agreement"] = {"prompts": 4}  # type: ignore[index]
    row = setting_costs(runs, setting_labels(runs), usual_losses())[0]
    assert "chat" not in row.classes


def test_memory_and_throughput_are_held_against_the_same_load(runs: list[Run]):
    for run in (runs[3], runs[4], runs[5]):
        run.config["load"] = {"name": "closed", "concurrency": 16}  # type: ignore[index]
        run.summary["output_tokens_per_s"] *= 3  # type: ignore[index]
    labels = {run.id: "packed" if run in runs[3:6] else "exact" for run in runs}
    row = setting_costs(runs, labels, usual_losses())[0]
    assert row.throughput is None and row.kv_memory is None
    assert row.classes["rag"].verdict == "loses"  # answers do not hang on the load


def test_what_did_not_pass_through_the_cache_is_said_to_be_unmeasured(runs: list[Run]):
    for run in (runs[2], runs[5]):
        del run.summary["quality"]["summary"]
        run.summary["quality"]["sees_kv_cache"] = False
    row = setting_costs(runs, setting_labels(runs), usual_losses())[0]
    assert row.classes["summarization"].verdict == "not seen"
    assert "not measured for summarization: the KV cache does not show in this" in cost_lines(runs)[0]


def test_a_fault_in_advice_does_not_cost_the_report(runs: list[Run], tmp_path: Path):
    """A limit that is no number cannot be judged; everything else can be shown."""
    runs[0].config["slo"] = {"ttft_p95_ms": "soon"}  # type: ignore[index]
    page = write_report(runs[:1], tmp_path / "report").read_text()
    assert "What to take: This cannot be told of these runs (TypeError:" in page
    assert "The rest of this report holds without it." in page
