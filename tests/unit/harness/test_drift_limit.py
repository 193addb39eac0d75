"""Which machine's speed is looked at, and a limit that cannot be."""

import pytest
from hydra import compose, initialize_config_module

from harness.config import Config, register_schemas, typed
from harness.core.errors import UsageError
from harness.cores import CoreShares, available_cores
from harness.placement import engine_cores


def composed(*overrides: str) -> Config:
    register_schemas()
    with initialize_config_module("conf", version_base="1.3"):
        return typed(compose("config", list(overrides)))


def test_a_limit_is_above_one() -> None:
    assert composed("hardware.drift_limit=null").hardware.drift_limit is None
    assert composed("hardware.drift_limit=1.5").hardware.drift_limit == 1.5
    for limit in ("1", "0.1", "-2", "inf", "nan"):
        with pytest.raises(UsageError, match=r"hardware\.drift_limit=.*such as 1\.2"):
            composed(f"hardware.drift_limit={limit}")


def test_only_the_machine_of_the_engine_is_looked_at() -> None:
    shares = CoreShares((3, 4), (5,), None)
    unpinned = CoreShares(None, None, None)
    assert engine_cores(composed(), shares) == (3, 4)
    assert engine_cores(composed(), unpinned) == tuple(available_cores())
    here = composed("backend=endpoint", "backend.base_url=http://127.0.0.1:8000")
    assert engine_cores(here, unpinned) == tuple(available_cores())
    elsewhere = composed("backend=endpoint", "backend.base_url=http://192.0.2.7:8000")
    assert engine_cores(elsewhere, unpinned) is None
