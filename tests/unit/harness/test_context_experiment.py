from itertools import pairwise

from hydra import compose, initialize_config_module
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser

from harness.config import register_schemas, typed


def test_every_case_doubles_the_context_or_changes_the_concurrency_alone() -> None:
    register_schemas()
    with initialize_config_module("conf", version_base="1.3"):
        chosen = "experiment=context_scaling"
        swept = compose("config", overrides=[chosen], return_hydra_config=True).hydra.sweeper.params
        choices = OverridesParser.create().parse_overrides([f"experiment.case={swept['experiment.case']}"])
        configs = [
            typed(compose("config", overrides=[chosen, "backend=kvcompress", override]))
            for (override,) in BasicSweeper.split_arguments(choices, None)[0]
        ]
    alone = [config for config in configs if config.load.concurrency == 1]
    lengths = [config.workload.prompt_tokens for config in alone]
    assert lengths[0] == 256
    assert all(longer in (2 * shorter, 2 * shorter - 64) for shorter, longer in pairwise(lengths))
    crowded = [config for config in configs if config.load.concurrency > 1]
    assert {config.workload.prompt_tokens for config in crowded} == {256}
    assert {config.backend.max_running for config in crowded} == {1, 2, 4, 8}
    for config in configs:
        assert config.backend.name == "kvcompress"  # whatever engine is chosen
        assert config.backend.max_running in (1, config.load.concurrency)
        assert config.workload.prompt_tokens + config.workload.output_tokens <= (
            config.backend.context_length or 0
        )
        assert config.workload.requests >= config.load.concurrency
        assert not config.backend.prefix_cache
