"""`experiment=kv_granularity` as a whole command, small: two engines, two precisions each, one class of work."""

from pathlib import Path

import pandas as pd
import pytest

from tests.support.command_line import records, run

pytestmark = pytest.mark.engine
_SETTINGS = "openvino-kv-f16,openvino-kv-int4,kvcompress-kv-f32,kvcompress-kv-int4-group"
# The texts of agreement are longer than the 64 tokens of a pass, so that the cache is read.
_SMALL = [
    *("workload=chat", "workload.requests=2", "workload.prompt_tokens=128", "workload.output_tokens=4"),
    *("workload.think_time_s=0", "load.requests=2", "load.warmup=0"),
    *("quality.agreement.prompts=3", "quality.agreement.prompt_tokens=100", "quality.agreement.tokens=8"),
    *("quality.reasoning.items=1", "quality.reasoning.grades=[1]"),
]


def test_settings_of_two_engines_each_against_its_own_full_precision(tmp_path: Path):
    done = run(["harness", "experiment=kv_granularity", f"setting={_SETTINGS}", *_SMALL], tmp_path)
    assert done.status == 0, done.err
    results = tmp_path / "results"
    assert [record["status"] for record in records(results)] == ["complete"] * 4
    (report,) = (results / "reports").glob("*/report.html")
    assert "What each KV setting costs in quality, by task" in report.read_text()
    costs = pd.read_csv(report.parent / "data" / "quality_costs_kv.csv")
    divergence = costs[costs["figure"] == "KL divergence"].set_index("setting")
    assert (
        len(divergence) == 2
    )  # the two quantised ones; those of full precision are what they are held against
    assert [name.split(" · ")[0] for name in divergence["baseline"]] == ["openvino", "kvcompress"]
    assert (divergence["lost"] > 0).all()
    assert (divergence["items"] == 3 * 8).all()
