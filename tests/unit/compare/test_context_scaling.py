from pathlib import Path
from typing import Any

import pytest

from harness.compare.context_scaling import Study, studies
from harness.records.reader import Run, read_run
from tests.support.synthetic_runs import KV_BYTES_PER_TOKEN, Schedule, write_run

LENGTHS = (256, 512, 1024, 2048, 4032)
LINEAR, QUADRATIC = 0.3, 5e-5  # ms a token, ms a pair


def written(folder: Path, tokens: int, at_once: int = 1, running: int = 1, **changes: Any) -> Run:
    """A run whose TTFT is that of LINEAR and QUADRATIC, and whose tokens come every 20 ms."""
    schedule = Schedule(
        requests=4 * at_once,
        tokens=48,
        slots=at_once,
        prompt_tokens=tokens,
        lag_ms=0.0,
        ttft_ms=changes.pop("ttft_ms", LINEAR * tokens + QUADRATIC * tokens**2),
        warmup=1,
    )
    backend = {"name": "openvino", "kv_dtype": "f16", "max_running": running} | changes.pop("backend", {})
    config = {
        "backend": backend,
        "workload": {"name": "summarization", "prompt_tokens": tokens, "requests": schedule.requests},
        "load": {"name": "closed", "concurrency": at_once},
    }
    run_id = f"{backend['name']}-{tokens}-{at_once}-{running}"
    return read_run(write_run(folder, run_id, schedule, config=config, **changes))


def study(folder: Path) -> Study:
    runs = [written(folder, tokens) for tokens in LENGTHS]
    runs += [written(folder, 256, count, count, ttft_ms=100.0 * count) for count in (2, 4, 8)]
    # One after another: the same tokens a second whatever waits.
    runs += [written(folder, 256, 8, 1, ttft_ms=8 * 1020.0)]
    (found,) = studies(runs)
    return found


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Study:
    return study(tmp_path_factory.mktemp("results"))


def test_growth_is_that_of_the_schedules(found: Study) -> None:
    growth = found.growth
    assert growth is not None
    assert [point.tokens for point in growth.points] == list(LENGTHS)
    assert growth.memory is not None
    assert growth.memory.exponent.value == pytest.approx(
        1.0, abs=0.04
    )  # what is generated is not in the gauge
    assert growth.bytes_per_token is not None
    assert growth.bytes_per_token.value == pytest.approx(KV_BYTES_PER_TOKEN, rel=0.01)
    assert growth.prefill is not None
    assert growth.prefill.linear.value == pytest.approx(LINEAR, rel=1e-3)
    assert growth.prefill.quadratic.value == pytest.approx(QUADRATIC, rel=1e-3)
    assert growth.prefill.even == pytest.approx(LINEAR / QUADRATIC, rel=2e-3)
    assert growth.ttft is not None
    assert 1 < growth.ttft.exponent.low < growth.ttft.exponent.value < 2


def test_batching_is_set_against_the_same_queue_in_turn(found: Study) -> None:
    batching = found.batching
    assert batching is not None
    assert batching.tokens == 256
    assert [point.concurrency for point in batching.together] == [1, 2, 4, 8]
    assert [point.concurrency for point in batching.in_turn] == [1, 8]
    together, in_turn = batching.together[-1], batching.in_turn[-1]
    assert batching.gain == (8, together.tokens_per_s / in_turn.tokens_per_s)
    assert batching.gain[1] > 3


def test_runs_that_differ_in_anything_else_are_another_study(tmp_path: Path) -> None:
    runs = [written(tmp_path, tokens) for tokens in LENGTHS]
    assert studies(runs[:2]) == []  # two lengths are no growth
    other = [written(tmp_path, tokens, backend={"name": "kvcompress"}) for tokens in LENGTHS[:3]]
    assert [len(found.runs) for found in studies([*runs, *other])] == [5, 3]
    assert studies([*runs[:2], *other[2:]]) == []


def test_runs_that_are_no_study_make_none(tmp_path: Path) -> None:
    runs = [read_run(write_run(tmp_path, f"chat-{seed}", Schedule(seed=seed))) for seed in range(3)]
    assert studies(runs) == []
    partial = [written(tmp_path, tokens, status="partial") for tokens in LENGTHS]
    assert studies(partial) == []
