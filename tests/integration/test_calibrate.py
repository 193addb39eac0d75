"""`python -m harness.calibrate` as a user types it, and one load end to end with either server."""

import json
import shutil
from pathlib import Path

import pytest

from harness.calibrate.loads import Load, drive
from tests.support import command_line


def test_the_command_keeps_what_it_finds(tmp_path: Path):
    cache = tmp_path / "cache"
    environment = {"INFERENCE_HARNESS_CACHE": str(cache)}
    before = command_line.run(["harness.calibrate", "action=show"], tmp_path, **environment)
    assert before.status == 2 and "Type: python -m harness.calibrate" in before.err
    done = command_line.run(["harness.calibrate", "quick=true"], tmp_path, **environment)
    assert done.status == 0, done.err
    record = json.loads(Path(done.last_line).read_text())
    assert Path(done.last_line).is_relative_to(cache)
    assert record["capacity"]["tokens_per_s"] > 0 and record["capacity"]["streams"] > 0
    titles = [reading["title"] for reading in record["readings"]]
    assert "16 streams × 50 tokens/s" in titles and all(title in done.out for title in titles)
    for reading in record["readings"]:
        assert set(reading["errors"]) == {"ttft", "gap", "tpot", "e2e", "lost"}
        assert reading["events_per_read"] >= 1 and reading["tokens"] > 0
    shown = command_line.run(["harness.calibrate", "action=show"], tmp_path, **environment)
    assert shown.status == 0 and shown.last_line == done.last_line
    assert f"{record['capacity']['tokens_per_s']:,.0f} tokens/s" in shown.out


@pytest.mark.parametrize(
    "arguments, named",
    [
        (["quick"], "key=value"),
        (["fast=true"], "fast"),
        (["quick=maybe"], "true, false"),
        (["server=rust"], "c, python"),
    ],
)
def test_bad_arguments_are_one_line(arguments: list[str], named: str, tmp_path: Path):
    done = command_line.run(["harness.calibrate", *arguments], tmp_path)
    assert done.status == 2 and named in done.err and len(done.err.splitlines()) == 1


def test_help(tmp_path: Path):
    done = command_line.run(["harness.calibrate", "--help"], tmp_path)
    assert done.status == 0 and "quick=true" in done.out and "server=c|python" in done.out


@pytest.mark.parametrize("language", ["c", "python"])
def test_client_and_server_agree_on_every_token(language: str):
    if language == "c" and shutil.which("cc") is None:
        pytest.skip("there is no C compiler here")
    run = drive(Load("", 12, 7, 2_000, options={"concurrency": 4}), language)
    assert run.reading.errors.lost == 0 and run.reading.tokens == 12 * 7
    assert sorted(one.id for one in run.log.requests) == sorted(f"measured-{index}" for index in range(12))
    assert run.reading.streams == 4 and run.reading.events_per_read >= 1
    # The server's instants lie inside the client's, whatever the machine was doing.
    rows = run.measurement.requests.set_index("index")
    for one in run.log.requests:
        row = rows.loc[int(one.id.rpartition("-")[2])]
        assert row["sent_ns"] <= one.received_ns <= one.sends[0] <= row["first_ns"]
        assert one.sends[-1] <= row["last_ns"]


def test_arrivals_of_an_open_loop():
    load = Load("", 30, 2, 1_000, kind="poisson", options={"rate": 200.0})
    reading = drive(load).reading
    assert reading.errors.lost == 0 and reading.lag_p99_ms is not None
