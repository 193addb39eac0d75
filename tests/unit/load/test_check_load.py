"""Impossible load options are refused with the key that is wrong."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from harness.config import SCHEMAS
from harness.core.errors import UsageError
from harness.load.arrivals import NAMES
from harness.load.check import check_instants, check_load, short_plan
from harness.load.options import LoadOptions
from tests.support.client_jobs import load, plan

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


def defaults(name: str, **changes: Any) -> LoadOptions:
    """What conf/load/NAME.yaml says, with some values changed."""
    values = OmegaConf.load(CONF / f"{name}.yaml")
    del values["defaults"]
    schema = OmegaConf.structured(SCHEMAS["load"][name])
    options = OmegaConf.to_object(OmegaConf.merge(schema, values, changes))
    assert isinstance(options, LoadOptions)
    return options


@pytest.mark.parametrize("name", NAMES)
def test_each_process_has_a_file_of_defaults_that_is_complete(name: str) -> None:
    assert (CONF / f"{name}.yaml").read_text().startswith("# ")
    options = defaults(name)
    assert options.name == name
    check_load(options)


@pytest.mark.parametrize(
    ("name", "key", "changes"),
    [
        ("closed", "load.ramp_s", {"ramp_s": -1}),
        ("closed", "load.ramp_s", {"ramp_s": float("inf")}),
        ("gamma", "load.cv", {"cv": 0}),
        ("gamma", "load.rate", {"rate": None}),
        ("ramp", "load.rate", {"rate": -1}),
        ("ramp", "load.rate_end", {"rate_end": float("inf")}),
        ("ramp", "load.rate", {"rate": 0, "rate_end": 0}),
        ("ramp", "load.ramp_s", {"ramp_s": 0}),
        ("ramp", "load.arrivals", {"arrivals": "regular"}),
        ("steps", "load.stages", {"stages": []}),
        ("steps", "load.stages", {"stages": ["3"]}),
        ("steps", "load.stages", {"stages": ["3x"]}),
        ("steps", "load.stages", {"stages": ["3x0"]}),
        ("steps", "load.stages", {"stages": ["-1x5"]}),
        ("steps", "load.stages", {"stages": ["0x5", "0x9"]}),
        ("steps", "load.stages", {"stages": ["nanx5"]}),
        ("steps", "load.rate", {"rate": 2}),
        ("steps", "load.arrivals", {"arrivals": ""}),
        ("steps", "load.concurrency", {"concurrency": 0}),
        ("trace", "load.rate", {"rate": 2}),
        ("trace", "load.time_scale", {"time_scale": 0}),
    ],
)
def test_the_key_of_a_schedule_is_named(name: str, key: str, changes: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=rf"^{key}="):
        check_load(defaults(name, **changes))


@pytest.mark.parametrize(
    ("name", "changes", "bound_s"),
    [
        ("closed", {}, None),
        ("poisson", {"duration_s": 7}, 7),
        ("ramp", {"ramp_s": 40}, 40),
        ("ramp", {"ramp_s": 40, "duration_s": 50}, 50),
        ("steps", {"stages": ["1x30", "2x12.5"]}, 42.5),
        ("steps", {"stages": ["1x30", "2x12.5"], "duration_s": 5}, 5),
        ("trace", {}, None),
    ],
)
def test_what_bounds_a_run_in_time(name: str, changes: dict[str, Any], bound_s: float | None) -> None:
    assert defaults(name, **changes).bound_s == bound_s


def test_a_replay_needs_recorded_instants() -> None:
    requests = plan(2)
    with pytest.raises(UsageError, match="workload=trace"):
        check_instants(defaults("trace"), requests)
    check_instants(defaults("poisson"), requests)
    check_instants(defaults("trace"), [replace(request, arrival_s=0.5) for request in requests])


@pytest.mark.parametrize(
    ("name", "changes", "expected"),
    [
        ("poisson", {"rate": 2, "duration_s": 30}, 60),
        ("poisson", {"rate": 2}, None),
        ("closed", {"duration_s": 30}, None),
        ("ramp", {"rate": 1, "rate_end": 5, "ramp_s": 10}, 30),
        ("ramp", {"rate": 1, "rate_end": 5, "ramp_s": 10, "duration_s": 5}, 10),
        ("ramp", {"rate": 1, "rate_end": 5, "ramp_s": 10, "duration_s": 12}, 40),
        ("steps", {"stages": ["1x10", "4x5"]}, 30),
        ("steps", {"stages": ["1x10", "4x5"], "duration_s": 12}, 18),
        ("steps", {"stages": ["1x10", "4x5"], "duration_s": 20}, 50),
        ("trace", {"duration_s": 30}, None),
    ],
)
def test_a_plan_that_ends_before_its_time_is_told(
    name: str, changes: dict[str, Any], expected: float | None
) -> None:
    options = defaults(name, **changes)
    assert options.offered_sessions == (None if expected is None else pytest.approx(expected))
    if expected is None:
        assert short_plan(options, 1) is None
        return
    assert short_plan(options, round(expected)) is None
    assert f"about {expected:g} are due" in (short_plan(options, round(expected / 2)) or "")
    assert short_plan(defaults(name, **{**changes, "requests": 3}), 3) is None  # bounded by count on purpose


@pytest.mark.parametrize("name", NAMES)
def test_which_loads_change_on_purpose(name: str) -> None:
    assert defaults(name).even is (name not in ("ramp", "steps", "trace"))
