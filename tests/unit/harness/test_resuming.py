"""Which runs of an earlier command stand for those of this one."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_module

from harness.config import Config, register_schemas, shown_config, typed
from harness.resuming import Earlier
from tests.support.synthetic_runs import write_run


@pytest.fixture(scope="module")
def config() -> Config:
    register_schemas()
    with initialize_config_module("conf", version_base="1.3"):
        return typed(compose("config", ["backend=endpoint", "backend.base_url=http://127.0.0.1:9"]))


def changed(config: Config, group: str, **values: Any) -> Config:
    return replace(config, **{group: replace(getattr(config, group), **values)})


@pytest.mark.parametrize(
    ("group", "values", "same"),
    [
        ("hardware", {"drift_limit": None}, True),
        ("backend", {"start_timeout_s": 7.0}, True),
        ("backend", {"port": 1234}, True),
        ("backend", {"kv_dtype": "int8"}, False),
        ("hardware", {"pin": False}, False),
        ("hardware", {"price_per_hour": 3.0}, False),  # figures of cost are in the record
        ("load", {"concurrency": 3}, False),
    ],
)
def test_a_run_is_taken_for_what_it_measured(
    config: Config, tmp_path: Path, group: str, values: dict[str, Any], same: bool
):
    write_run(tmp_path, "before", config=shown_config(config), sweep="s1")
    wanted = replace(changed(config, group, **values), repeats=4, results_dir="elsewhere")
    earlier = Earlier("s1", tmp_path)
    assert earlier.holds(config)
    assert earlier.holds(wanted) is same
    assert earlier.take(wanted) == ("before" if same else None)


def test_a_sweep_from_before_an_option_existed_can_be_gone_on_with(config: Config, tmp_path: Path):
    old = shown_config(config)
    del old["hardware"]["drift_limit"]
    write_run(tmp_path, "before", config=old, sweep="s1")
    assert Earlier("s1", tmp_path).take(config) == "before"
