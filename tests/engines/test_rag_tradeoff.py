"""`experiment=rag_tradeoff` as a whole command, with two of its settings, made small."""

from pathlib import Path

import pandas as pd
import pytest

from tests.support.command_line import records, run

pytestmark = [pytest.mark.engine, pytest.mark.another_start]

SMALL = (
    "load.requests=10",
    "load.warmup=1",
    "workload.output_tokens=8",
    "workload.prompt_tokens=400",
    "workload.chunks_per_query=2",
    "quality.perplexity.tokens=140",
    "quality.perplexity.window=70",
    "quality.recall.lengths=[128]",
    "quality.recall.depths=[0.5]",
    "quality.recall.trials=2",
    "quality.rag.prompts=2",
    "quality.rag.answer_tokens=8",
    "hardware.price_per_hour=0.1",
    "hardware.drift_limit=null",  # whatever else the machine does, the runs count
)


def test_what_must_stay_is_measured_drawn_and_answered(tmp_path: Path):
    settings = "backend.kv={evict:none},{evict:snapkv,budget:{fraction:0.5}}"
    done = run(["harness", "-m", "experiment=rag_tradeoff", settings, *SMALL], tmp_path)
    assert done.status == 0, done.err
    exact, half = records(tmp_path / "results")
    assert (
        half["summary"]["memory"]["kv_per_request_bytes"] < exact["summary"]["memory"]["kv_per_request_bytes"]
    )
    assert {"perplexity", "recall", "rag"} <= set(half["summary"]["quality"])
    (data,) = (tmp_path / "results" / "reports").glob("*/data/tradeoff.csv")
    drawn = pd.read_csv(data)
    assert {"perplexity", "TTFT p50, ms", "KV a request, MB"} <= set(drawn["figure"])
    assert set(drawn["share"]) == {1.0, 0.5}
    (report,) = data.parent.parent.glob("report.html")
    assert "How much of the past must stay: rag on kvcompress" in report.read_text()
