"""Searches and sweeps by whole commands, against a server whose capacity is known."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import leftovers, records, run, start
from tests.support.fixtures import ScriptedServer, scripted_server

# Two requests at a time, 100 ms to the first token and 5 × 20 ms for the others: 10 requests a second at most.
CAPACITY = 10.0
SMALL = [
    *("workload.requests=6", "workload.prompt_tokens=160", "workload.output_tokens=6", "workload.turns=1"),
    "hardware.drift_limit=null",
]


@pytest.fixture(scope="module")
def bounded() -> Iterator[ScriptedServer]:
    with scripted_server("--slots", "2", "--ttft-ms", "100", "--itl-ms", "20") as server:
        yield server


def command(server: ScriptedServer, *more: str) -> list[str]:
    backend = ["backend=endpoint", f"backend.base_url={server.base_url}"]
    return ["harness", *backend, *SMALL, "load.warmup=1", *more]


def result_of(folder: Path) -> dict[str, Any]:
    (path,) = (folder / "results" / "searches").glob("*.json")
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def test_the_highest_rate_within_the_slo_is_found(bounded: ScriptedServer, tmp_path: Path) -> None:
    """The first probe offers four times the capacity, and is ended early; the answer is not above the capacity.

    A bound on requests in flight hides none of it: those that wait for it count as well.
    """
    more = ["load.first=40", "load.most_in_flight=20", "load.duration_s=1", "load.tolerance=0.5"]
    more += ["load.concurrency=8"]
    done = run(
        command(
            bounded, "load=search", "load.arrivals=constant", "slo.ttft_p95_ms=400", "load.probes=5", *more
        ),
        tmp_path,
    )
    assert done.status == 0, done.err
    result = result_of(tmp_path)
    answer, probes = result["answer"], result["probes"]
    assert 0 < answer["value"] <= 1.2 * CAPACITY
    assert answer["missed"] > answer["value"]
    assert [probe["value"] for probe in probes[:2]] == [40, 20]
    assert "load.most_in_flight=20" in probes[0]["stopped"]
    assert "held back by load.concurrency" in probes[0]["stopped"]
    assert result["sentence"] in done.out
    found = records(tmp_path / "results")
    assert [record["id"] for record in found] == [probe["run"] for probe in probes]
    assert found[0]["status"] == "partial" and "load.most_in_flight" in found[0]["reason"]
    assert found[0]["summary"]["requests"]["errors"].get("aborted")
    assert len({record["sweep"] for record in found}) == 1
    assert len({record["fingerprint"]["plan_sha256"] for record in found}) == len(found)
    assert [record["config"]["load"]["rate"] for record in found] == [probe["value"] for probe in probes]
    assert done.err.count("Reaching endpoint …") == 1
    report = (tmp_path / done.last_line).read_text()
    assert all(record["id"] in report for record in found)
    assert leftovers(tmp_path / "results") == []


def test_the_highest_concurrency_within_the_slo_is_found(bounded: ScriptedServer, tmp_path: Path) -> None:
    """Two slots: with a third session every third request waits 200 ms for one, on top of its own 100."""
    more = ["load.over=concurrency", "load.first=1", "load.rounds=4", "slo.ttft_p90_ms=220", "load.probes=5"]
    done = run(command(bounded, "load=search", "load.duration_s=null", *more), tmp_path)
    assert done.status == 0, done.err
    result = result_of(tmp_path)
    assert [probe["value"] for probe in result["probes"]] == [1, 2, 4, 3, 2]
    assert result["answer"] == {"value": 2, "missed": 3, "repeated": True, "narrow": True}
    assert "2 sessions in flight" in result["sentence"] and "a repeat agreed" in result["sentence"]


def test_a_sweep_walks_its_list(bounded: ScriptedServer, tmp_path: Path) -> None:
    done = run(command(bounded, "load=sweep_rate", "load.rates=[4,2]", "load.requests=3"), tmp_path)
    assert done.status == 0, done.err
    result = result_of(tmp_path)
    assert [probe["value"] for probe in result["probes"]] == [4, 2]
    assert [probe["met"] for probe in result["probes"]] == [None, None]
    assert result["answer"] is None
    found = records(tmp_path / "results")
    assert [record["config"]["load"]["rate"] for record in found] == [4, 2]
    assert len({record["config"]["seed"] for record in found}) == 2


def test_what_cannot_be_is_refused_before_anything_starts(tmp_path: Path) -> None:
    done = run(
        ["harness", "backend=endpoint", "backend.base_url=http://127.0.0.1:1", "load=search"], tmp_path
    )
    assert done.status == 2, done.err
    assert "load=search needs limits" in done.err
    assert not (tmp_path / "results").exists()


def test_a_server_that_dies_ends_the_search_and_what_was_found_is_kept(tmp_path: Path) -> None:
    with scripted_server("--ttft-ms", "5", "--itl-ms", "1") as server:
        chosen = [
            "load=search",
            "slo.ttft_p95_ms=1000",
            "load.duration_s=1",
            "load.first=4",
            "load.requests=4",
        ]
        process = start(command(server, *chosen), tmp_path)
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("Probe 2"):
                break
        server.kill()
        _, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "The search ended" in err and "Traceback" not in err
    result = result_of(tmp_path)
    assert result["broken_off"] and result["answer"]["value"] == 4
    assert "Broken off" in result["sentence"]
