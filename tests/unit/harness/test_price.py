"""A price that cannot be is refused before anything starts."""

import pytest
from hydra import compose, initialize_config_module

from harness.config import register_schemas, typed
from harness.core.errors import UsageError


def test_a_price_is_above_zero() -> None:
    register_schemas()
    with initialize_config_module("conf", version_base="1.3"):
        assert typed(compose("config", ["hardware.price_per_hour=0.5"])).hardware.price_per_hour == 0.5
        for price in ("0", "-1", "inf"):
            with pytest.raises(UsageError, match="a price is above 0"):
                typed(compose("config", [f"hardware.price_per_hour={price}"]))
