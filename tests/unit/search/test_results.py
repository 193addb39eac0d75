"""What a search says at its end."""

from collections.abc import Iterator

import orjson
import pytest
from hydra import compose, initialize_config_module

from harness.config import Config, register_schemas, typed
from harness.search.options import ProbeOptions
from harness.search.results import Probe, Result


@pytest.fixture(scope="module")
def config() -> Iterator[Config]:
    register_schemas()
    with initialize_config_module("conf", version_base="1.3"):
        yield typed(compose("config", overrides=["load=search", "slo=interactive", "load.first=2"]))


def result(
    config: Config, *probes: tuple[float, bool | None], broken_off: bool = False, enough: bool = True
) -> Result:
    assert isinstance(config.load, ProbeOptions)
    made = tuple(
        Probe(value, f"r{number}", "complete", met, "TTFT p95 7 ms", "", enough, None, {})
        for number, (value, met) in enumerate(probes)
    )
    return Result("r1", "s1", config.load, config, made, broken_off)


def test_an_answer_that_was_repeated(config: Config) -> None:
    found = result(config, (2, True), (4, False), (3, True), (3.2, False), (3, True))
    assert found.sentence() == (
        "The highest load found within the SLO is 3 sessions/s; 3.2 missed it; a repeat agreed."
    )


@pytest.mark.parametrize(
    ("probes", "more", "words"),
    [
        ([(2, True), (4, True)], {}, "so it lies higher; load.probes ended the search"),
        ([(2, True), (4, False)], {}, "it was not repeated"),
        ([(2, False), (1, False)], {}, "No load met the SLO: 1 sessions/s"),
        ([(2, True), (4, False)], {"enough": False}, "few samples"),
        ([(2, True), (4, False)], {"broken_off": True}, "Broken off before its end. So far: The highest"),
        ([(2, True), (4, None)], {"broken_off": True}, "nothing tried missed it"),
        ([(2, None)], {"broken_off": True}, "none was held against an SLO"),
    ],
)
def test_what_an_answer_lacks_is_said(
    config: Config, probes: list[tuple[float, bool | None]], more: dict[str, bool], words: str
) -> None:
    sentence = result(config, *probes, **more).sentence()
    assert words in sentence
    assert ("ended the search" in sentence) <= (not more.get("broken_off"))


def test_the_record_is_json(config: Config) -> None:
    record = orjson.loads(orjson.dumps(result(config, (2, True), (4, False)).to_record(), default=str))
    assert record["answer"] == {"value": 2, "missed": 4, "repeated": False, "narrow": False}
    assert [probe["met"] for probe in record["probes"]] == [True, False]
    assert record["config"]["load"]["first"] == 2
