"""`experiment=kv_saving`, a whole command made small: a pool that two plain requests fill holds more packed ones."""

import json
from pathlib import Path

import pytest

from harness.records.reader import Run, latest_runs
from tests.support.command_line import run

pytestmark = [pytest.mark.engine, pytest.mark.another_start]

PROMPT, ANSWER = 160, 16
PLAIN = (
    (PROMPT + ANSWER) * 2 * 30 * 3 * 64 * 4
)  # keys and values, layers, KV heads, values of a head, bytes of f32
SMALL = (
    f"workload.prompt_tokens={PROMPT}",
    f"workload.output_tokens={ANSWER}",
    "workload.facts=1",
    "backend.context_length=192",
    f"backend.kv_bytes={int(2.5 * PLAIN)}",
    "hardware.price_per_hour=0.1",
    "hardware.drift_limit=null",  # whatever else the machine does, the runs count
)


def most_at_once(measured: Run) -> int:
    """Requests that have had their first token and not their last one."""
    requests = measured.requests
    return max(int(((requests.first_ns <= at) & (at < requests.last_ns)).sum()) for at in requests.first_ns)


def test_a_full_pool_serves_more_requests_of_fewer_bytes(tmp_path: Path):
    done = run(["harness", "experiment=kv_saving", *SMALL], tmp_path)
    assert done.status == 0, done.err
    plain, packed, evicted = latest_runs(tmp_path / "results")
    assert most_at_once(plain) == 2
    assert most_at_once(packed) > 2
    assert most_at_once(evicted) > 2
    advised = run(["harness.advise", "out=advice"], tmp_path)
    assert advised.status == 0, advised.err
    advice = json.loads((tmp_path / "advice" / "advice.json").read_text())
    savings = {
        one["runs"][0]: one["saving"] for one in advice["ranked"] + advice["excluded"] if one["saving"]
    }
    assert set(savings) == {packed.id, evicted.id}
    for other in (
        packed,
        evicted,
    ):  # what a token costs is the price of the machine's time over tokens in that time
        share = 1 - plain.summary["output_tokens_per_s"] / other.summary["output_tokens_per_s"]
        assert savings[other.id]["share"] == pytest.approx(share)
