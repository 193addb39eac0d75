"""What is no part of a setting is none wherever settings are told apart."""

from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_module

from harness.compare.cells import cells
from harness.compare.two_sides import differences
from harness.config import register_schemas, shown_config, typed
from harness.records.reader import Run, read_run
from harness.records.setting_keys import MEASURES_NOTHING, PRICE, SEEDS
from harness.report.labels import group_labels
from harness.report.values import flatten
from tests.support.synthetic_runs import write_run


@pytest.fixture(scope="module")
def config() -> dict[str, Any]:
    register_schemas()
    with initialize_config_module("conf", version_base="1.3"):
        return shown_config(typed(compose("config", [])))


def runs(folder: Path, side: str, config: dict[str, Any], key: str, value: object) -> list[Run]:
    """Two settings, both with `value` of this key."""
    group, _, name = key.rpartition(".")
    for kv_dtype in ("f16", "int8"):
        changed = {part: dict(keys) if isinstance(keys, dict) else keys for part, keys in config.items()}
        changed["backend"]["kv_dtype"] = kv_dtype
        (changed[group] if group else changed)[name] = value
        write_run(folder, f"{side}-{kv_dtype}", config=changed)
    return [read_run(f"{side}-{kv_dtype}", folder) for kv_dtype in ("f16", "int8")]


@pytest.mark.parametrize("key", [*MEASURES_NOTHING, *SEEDS, *PRICE])
def test_settings_are_paired_and_named_whatever_it_is(config: dict[str, Any], tmp_path: Path, key: str):
    assert key in flatten(config)
    one, other = (runs(tmp_path, side, config, key, value) for side, value in (("a", 1), ("b", 2)))
    found = cells(one, other)
    assert [cell.setting for cell in found] == ["backend.kv_dtype=f16", "backend.kv_dtype=int8"]
    told = {difference.name for cell in found for difference in differences(cell)}
    assert (key in told) == (key in PRICE)  # figures of cost differ by it, so that it is told
    if key not in PRICE:
        assert len(set(group_labels([*one, *other]).values())) == 2
