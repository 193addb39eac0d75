"""Every setting of experiment=rag_tradeoff is one that the engine would take; the first keeps everything."""

from hydra import compose, initialize_config_module
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from backends.kvcompress.policies import check_policy
from backends.kvcompress.spec import from_mapping, with_full_precision
from harness.config import register_schemas


def test_every_choice_can_be_held() -> None:
    register_schemas()
    chosen = "experiment=rag_tradeoff"
    with initialize_config_module("conf", version_base="1.3"):
        swept = compose("config", overrides=[chosen], return_hydra_config=True).hydra.sweeper.params
        choices = OverridesParser.create().parse_overrides([f"backend.kv={swept['backend.kv']}"])
        specs = []
        for (override,) in BasicSweeper.split_arguments(choices, None)[0]:
            config = compose("config", overrides=[chosen, override])
            specs.append(from_mapping(OmegaConf.to_container(config.backend.kv)))
    assert len(set(specs)) == len(specs) == 17
    for spec in specs:
        check_policy(spec.evict)
    assert specs[0] == with_full_precision(specs[0])
    assert {spec.budget.fraction for spec in specs} == {None, 0.75, 0.5, 0.44, 0.35, 0.25}
