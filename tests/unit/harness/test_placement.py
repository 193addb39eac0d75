"""Processes and cores of a run, and of the probes of a search."""

from collections.abc import Iterator

import pytest
from hydra import compose, initialize_config_module

from harness import placement
from harness.calibrate.kept import Capacity
from harness.config import Config, register_schemas, typed
from harness.core.requests import Plan
from harness.placement import Placement, place, place_again
from harness.search.options import ProbeOptions
from tests.support.client_jobs import plan

PLAN = Plan("any", 0, tuple(plan(20, tokens=50)), ())  # 50 tokens a session
REMOTE = ("backend=endpoint", "backend.base_url=http://192.0.2.7:8000")


@pytest.fixture(autouse=True)
def eight_cores(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine that was calibrated: one process measures 1000 tokens/s."""
    monkeypatch.setattr(placement, "available_cores", lambda: list(range(8)))
    monkeypatch.setattr(placement, "kept_capacity", lambda: Capacity(1000.0, "client", 500, "client"))
    register_schemas()
    with initialize_config_module("conf", version_base="1.3"):
        yield


def composed(*overrides: str) -> Config:
    return typed(compose("config", overrides=list(overrides)))


def probes_of(*overrides: str) -> tuple[Config, ProbeOptions]:
    config = composed("slo=interactive", *overrides)
    assert isinstance(config.load, ProbeOptions)
    return config, config.load


def at(config: Config, load: ProbeOptions, rate: float) -> Config:
    return Config(**{**vars(config), "load": load.probe(rate)})


def test_the_probes_of_a_sweep_are_placed_for_the_highest_of_them() -> None:
    config, load = probes_of("load=sweep_rate", "load.rates=[1,70,2]")
    assert load.highest == 70
    first = at(config, load, 1)
    placed = place(first, PLAN, load.probe(70))
    assert (placed.workers, placed.cores.client) == (4, (4, 5, 6, 7))  # 70 × 50 tokens/s
    assert placed.cores.engine == (0, 1, 2)
    assert place_again(at(config, load, 70), PLAN, placed) == placed
    assert place_again(at(config, load, 2), PLAN, placed) == placed


def test_a_search_without_a_bound_cannot_take_cores_from_a_running_engine() -> None:
    config, load = probes_of("load=search")
    assert load.highest is None
    placed = place(at(config, load, 1), PLAN)
    assert placed.workers == 1
    assert place_again(at(config, load, 64), PLAN, placed) == placed


def test_beside_a_server_of_somebody_else_their_number_grows_with_the_load_and_stays() -> None:
    config, load = probes_of("load=search", *REMOTE)
    placed = place(at(config, load, 1), PLAN)
    grown = place_again(at(config, load, 64), PLAN, placed)
    assert (placed.workers, grown.workers, grown.cores.client) == (1, 4, (4, 5, 6, 7))
    assert place_again(at(config, load, 2), PLAN, grown) == grown


@pytest.mark.parametrize(
    ("url", "here"),
    [
        ("http://127.0.0.1:8000", True),
        ("http://localhost:8000/v1", True),
        ("https://[::1]:8000", True),
        ("http://192.0.2.7", False),
        ("http://no.such.host.invalid", False),
    ],
)
def test_a_server_on_this_machine_is_known(url: str, here: bool) -> None:
    assert placement.on_this_machine(url) == here
    placed = place(composed("backend=endpoint", f"backend.base_url='{url}'"), PLAN)
    assert placed.cores.client == (None if here else (7,))


def test_where_nobody_is_confined_their_number_grows_too() -> None:
    config, load = probes_of("load=search", "hardware.pin=false")
    placed = place(at(config, load, 1), PLAN)
    assert place_again(at(config, load, 64), PLAN, placed) == Placement(placed.cores, 4)
