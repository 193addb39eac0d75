"""Impossible searches are refused with the key that is wrong; possible ones become ordinary loads."""

from collections.abc import Iterator

import pytest
from hydra import compose, initialize_config_module

from harness.config import Config, register_schemas, typed
from harness.core.errors import UsageError
from harness.load.check import check_load
from harness.search.check import check_probes
from harness.search.options import ProbeOptions, SearchOptions
from harness.search.probing import derived_seed, next_of, requests_for


@pytest.fixture(scope="module", autouse=True)
def _hydra() -> Iterator[None]:
    register_schemas()
    with initialize_config_module("conf", version_base="1.3"):
        yield


def composed(*overrides: str) -> tuple[Config, ProbeOptions]:
    config = typed(compose("config", overrides=list(overrides)))
    assert isinstance(config.load, ProbeOptions)
    return config, config.load


SEARCH = ("load=search", "slo=interactive")


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["load=search"], "needs limits"),
        ([*SEARCH, "quality=perplexity"], "quality=perplexity"),
        ([*SEARCH, "workload=file", "workload.path=x"], "saved plan"),
        ([*SEARCH, "load.rate=3"], "load.rate=3"),
        ([*SEARCH, "load.over=speed"], "load.over=speed"),
        ([*SEARCH, "load.probes=1"], "load.probes=1"),
        ([*SEARCH, "load.rounds=0"], "load.rounds=0"),
        ([*SEARCH, "load.tolerance=0"], "load.tolerance=0"),
        ([*SEARCH, "load.first=0"], "load.first=0"),
        ([*SEARCH, "load.first=4", "load.most=2"], "load.most=2"),
        ([*SEARCH, "load.attainment=1.5"], "load.attainment=1.5"),
        ([*SEARCH, "load.most_in_flight=0"], "load.most_in_flight=0"),
        ([*SEARCH, "load.over=concurrency", "load.first=1.5"], "load.first=1.5"),
        ([*SEARCH, "load.over=concurrency", "load.concurrency=5"], "load.concurrency"),
        (["load=sweep_rate", "load.rates=[]"], "load.rates=[]"),
        (["load=sweep_rate", "load.rates=[1,0]"], "load.rates=[1,0]"),
        (["load=sweep_rate", "load.arrivals=even"], "load.arrivals=even"),
    ],
)
def test_the_key_is_named(overrides: list[str], words: str) -> None:
    config, load = composed(*overrides)
    with pytest.raises(UsageError) as raised:
        check_probes(config, load)
    assert words in str(raised.value)


@pytest.mark.parametrize("over", ["rate", "concurrency"])
@pytest.mark.parametrize("arrivals", ["poisson", "constant"])
def test_a_probe_is_an_ordinary_load(over: str, arrivals: str) -> None:
    config, load = composed(*SEARCH, f"load.over={over}", f"load.arrivals={arrivals}", "load.drain_s=7")
    check_probes(config, load)
    probe = load.probe(3.0)
    check_load(probe)
    assert (probe.rate, probe.concurrency) == ((3.0, None) if over == "rate" else (None, 3))
    assert probe.name == (arrivals if over == "rate" else "closed")
    assert (probe.drain_s, probe.duration_s) == (7, load.duration_s)
    assert load.sessions(3.0) == (60 if over == "rate" else 24)
    assert isinstance(load, SearchOptions) and load.rules().whole == (over == "concurrency")
    assert load.rules().least == (0.05 if over == "rate" else 0.0)  # one session in 20 s


def test_a_sweep_takes_its_rates_in_order() -> None:
    config, load = composed("load=sweep_rate", "load.rates=[3,1,2]")
    check_probes(config, load)
    assert next_of(load)([]) == 3


def test_no_two_probes_share_a_seed() -> None:
    seeds = {derived_seed(seed, probe) for seed in range(20) for probe in range(20)}
    assert len(seeds) == 400
    assert derived_seed(0, 0) == derived_seed(0, 0)


def test_requests_are_drawn_for_what_chance_may_bring() -> None:
    assert requests_for(100, True, 2.0, None) == 280  # four deviations more
    assert requests_for(100, False, 2.0, None) == 240
    assert requests_for(0, True, 1.0, None) == 1


def test_sessions_of_a_trace_are_drawn_with_all_their_turns() -> None:
    """Its first session may be the longest by far, and turns of several sessions may come in between each other."""
    held = [400, 400, *range(403, 500)]
    assert [requests_for(sessions, False, 1.0, held) for sessions in (0, 1, 10, 1e6)] == [400, 400, 412, 499]
