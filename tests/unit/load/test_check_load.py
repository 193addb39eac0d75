"""Impossible load options are refused with the key that is wrong."""

from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from harness.core.errors import UsageError
from harness.load.arrivals import NAMES
from harness.load.check import check_load
from harness.load.options import LoadOptions
from tests.support.client_jobs import load

CONF = Path(__file__).parents[3] / "conf" / "load"


@pytest.mark.parametrize(
    ("key", "options"),
    [
        ("load.name", {"name": "bursty"}),
        ("load.concurrency", {"concurrency": None}),
        ("load.concurrency", {"concurrency": 0}),
        ("load.rate", {"rate": 2.0}),
        ("load.rate", {"name": "constant", "rate": None}),
        ("load.rate", {"name": "poisson", "rate": 0.0}),
        ("load.rate", {"name": "poisson", "rate": -1.0}),
        ("load.rate", {"name": "poisson", "rate": float("nan")}),
        ("load.rate", {"name": "constant", "rate": float("inf")}),
        ("load.concurrency", {"name": "constant", "rate": 1.0, "concurrency": 0}),
        ("load.requests", {"requests": 0}),
        ("load.duration_s", {"duration_s": 0.0}),
        ("load.duration_s", {"duration_s": float("nan")}),
        ("load.drain_s", {"drain_s": -1.0}),
        ("load.warmup", {"warmup": -1}),
        ("load.connect_timeout_s", {"connect_timeout_s": 0.0}),
        ("load.first_token_timeout_s", {"first_token_timeout_s": -1.0}),
        ("load.token_timeout_s", {"token_timeout_s": 0.0}),
        ("load.request_timeout_s", {"request_timeout_s": 0.0}),
    ],
)
def test_the_key_is_named(key: str, options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=rf"^{key}="):
        check_load(load(**options))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"name": "constant", "rate": 0.1, "concurrency": None},
        {"name": "poisson", "rate": 9.0, "concurrency": 3},
    ],
)
def test_what_makes_sense_passes(options: dict[str, Any]) -> None:
    check_load(load(**options))


@pytest.mark.parametrize("name", NAMES)
def test_each_process_has_a_file_of_defaults_that_is_complete(name: str) -> None:
    file = CONF / f"{name}.yaml"
    assert file.read_text().startswith("# ")
    values = OmegaConf.load(file)
    del values["defaults"]
    options = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(LoadOptions), values))
    assert isinstance(options, LoadOptions) and options.name == name
    check_load(options)
