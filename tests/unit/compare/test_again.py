"""The command that makes a run again, composed by Hydra, is the configuration of that run."""

import shlex
from dataclasses import asdict
from pathlib import Path

import pytest
from hydra import compose, initialize_config_module
from hydra.core.override_parser.overrides_parser import OverridesParser

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


KV = (["evict=h2o", "budget.tokens=256"], ["quant=int8", "value_quant=int4"])


@pytest.mark.parametrize(
    "sides", [([], KV[0]), KV, (KV[0], ["evict=h2o", "budget.fraction=0.5", "quant=int8"])]
)
def test_runs_that_differ_in_how_the_kv_cache_is_held_take_turns_in_a_sweep(
    sides: tuple[list[str], list[str]],
):
    arguments = [["backend=kvcompress", "seed=3", *(f"backend.kv.{key}" for key in side)] for side in sides]
    one, other = (run_of(*side) for side in arguments)
    (line,) = both(one, other, "repeats=5")
    *words, last = shlex.split(line)[3:]
    assert words[0] == "-m" and last == "repeats=5"
    swept = OverridesParser.create().parse_overrides(words[1:])
    choices = [list(each.sweep_string_iterator()) for each in swept if each.is_sweep_override()]
    fixed = [each.input_line for each in swept if not each.is_sweep_override()]
    assert [composed([*fixed, f"backend.kv={value}"]) for value in choices[0]] == [one.config, other.config]
    assert len(choices) == 1


def test_runs_that_more_tells_apart_have_a_command_each():
    one = run_of("backend=kvcompress")
    other = run_of(
        "workload=rag", "backend=kvcompress", "backend.kv.evict=h2o", "backend.kv.budget.tokens=256"
    )
    first, second = both(one, other, "repeats=5")
    assert first == "python -m harness backend=kvcompress repeats=5"
    assert "backend.kv.budget.tokens=256" in second
