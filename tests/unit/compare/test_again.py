"""The command that makes a run again, composed by Hydra, is the configuration of that run."""

import shlex
from dataclasses import asdict
from pathlib import Path

import pytest
from hydra import compose, initialize_config_module

from harness.compare.again import both, command, overrides_of
from harness.config import register_schemas, typed
from harness.records.reader import Run


def composed(arguments: list[str]) -> dict[str, object]:
    register_schemas()
    with initialize_config_module("conf", version_base="1.3"):
        return asdict(typed(compose("config", arguments)))


def run_of(*arguments: str) -> Run:
    return Run(Path(), "r1", "complete", "", config=composed(list(arguments)))


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["backend=kvcompress", "backend.kv.evict=h2o", "backend.kv.budget.fraction=0.5", "seed=7"],
        ["workload=rag", "load.concurrency=16", "load.requests=40", "slo=interactive", "slo.ttft_p95_ms=700"],
        ["load=poisson", "load.rate=2.5", "model=path", "model.path='/models/a b/x'", "quality=recall"],
        ["backend.eviction_keep=512", "backend.extra_args=['--a=b','c d']", "hardware.price_per_hour=0.5"],
        ["quality=[perplexity,recall]", "quality.recall.lengths=[128,256]", "quality.chunk=null"],
        ["backend=vllm", "backend.dtype=bf16", "workload.system_prompt='It is a user\\'s, isn\\'t it?'"],
    ],
)
def test_a_command_gives_the_run_that_it_was_made_of(arguments: list[str]):
    run = run_of(*arguments)
    line = shlex.split(command(overrides_of(run)))
    assert line[:3] == ["python", "-m", "harness"]
    assert composed(line[3:]) == run.config


def test_nothing_is_written_of_defaults():
    assert overrides_of(run_of()) == {}


def test_runs_that_one_key_tells_apart_take_turns_in_a_sweep():
    one, other = run_of("workload=rag"), run_of("workload=rag", "backend.kv_dtype=int8")
    assert both(one, other, "repeats=5") == [
        f"python -m harness -m workload=rag backend.kv_dtype={one.config['backend']['kv_dtype']},int8 repeats=5"
    ]


def test_runs_that_more_tells_apart_have_a_command_each():
    one = run_of("backend=kvcompress")
    other = run_of("backend=kvcompress", "backend.kv.evict=h2o", "backend.kv.budget.tokens=256")
    first, second = both(one, other, "repeats=5")
    assert first == "python -m harness backend=kvcompress repeats=5"
    assert "backend.kv.budget.tokens=256" in second
