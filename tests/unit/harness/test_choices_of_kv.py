"""Every setting of the experiments on kvcompress is one that the engine would take; the first keeps everything."""

import pytest
from hydra import compose, initialize_config_module
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from backends.kvcompress.policies import check_policy
from backends.kvcompress.spec import KvSpec, from_mapping, with_full_precision
from harness.config import register_schemas


def choices_of(experiment: str) -> list[KvSpec]:
    register_schemas()
    chosen = f"experiment={experiment}"
    with initialize_config_module("conf", version_base="1.3"):
        swept = compose("config", overrides=[chosen], return_hydra_config=True).hydra.sweeper.params
        choices = OverridesParser.create().parse_overrides([f"backend.kv={swept['backend.kv']}"])
        specs = []
        for (override,) in BasicSweeper.split_arguments(choices, None)[0]:
            config = compose("config", overrides=[chosen, override])
            specs.append(from_mapping(OmegaConf.to_container(config.backend.kv)))
    return specs


@pytest.mark.parametrize(
    ("experiment", "count", "shares"),
    [
        ("kv_methods", 20, {None, 0.5, 0.44, 0.35, 0.25}),
        ("rag_tradeoff", 17, {None, 0.75, 0.5, 0.44, 0.35, 0.25}),
        ("kv_saving", 3, {None, 0.44}),
    ],
)
def test_every_choice_can_be_held(experiment: str, count: int, shares: set[float | None]) -> None:
    specs = choices_of(experiment)
    assert len(set(specs)) == len(specs) == count
    for spec in specs:
        check_policy(spec.evict)
    assert specs[0] == with_full_precision(specs[0])
    assert {spec.budget.fraction for spec in specs} == shares


def test_the_pool_of_the_saving_holds_two_plain_requests() -> None:
    register_schemas()
    with initialize_config_module("conf", version_base="1.3"):
        config = compose("config", overrides=["experiment=kv_saving"])
    tokens = config.workload.prompt_tokens + config.workload.output_tokens
    plain = tokens * 2 * 30 * 3 * 64 * 4  # keys and values, layers, KV heads, values of a head, bytes of f32
    assert 2 * 1.05 * plain < config.backend.kv_bytes < 3 * plain  # 1.05: pages, docs/engines/kvcompress.md
    assert tokens <= config.backend.context_length
