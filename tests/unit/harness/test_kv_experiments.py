"""Every setting that the experiments of the in-house engine name is one that the engine would take."""

from collections.abc import Iterator

import pytest
from hydra import compose, initialize_config_module
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from backends.kvcompress.policies import check_policy
from backends.kvcompress.spec import from_mapping, with_full_precision
from harness.config import register_schemas


@pytest.fixture(autouse=True)
def hydra() -> Iterator[None]:
    register_schemas()
    with initialize_config_module("conf", version_base="1.3"):
        yield


@pytest.mark.parametrize(("experiment", "fewest"), [("kv_methods", 20), ("kv_granularity", 16)])
def test_every_choice_of_an_experiment_can_be_held(experiment: str, fewest: int) -> None:
    chosen = f"experiment={experiment}"
    swept = compose("config", overrides=[chosen], return_hydra_config=True).hydra.sweeper.params
    choices = OverridesParser.create().parse_overrides([f"backend.kv={swept['backend.kv']}"])
    specs = []
    for (override,) in BasicSweeper.split_arguments(choices, None)[0]:
        config = compose("config", overrides=[chosen, override])
        specs.append(from_mapping(OmegaConf.to_container(config.backend.kv)))
    assert len(set(specs)) == len(specs) >= fewest
    for spec in specs:
        check_policy(spec.evict)
    assert specs[0] == with_full_precision(specs[0])  # what the others are compared with
