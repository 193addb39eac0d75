"""Several measuring processes leave what one would leave."""

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import psutil
import pytest

from harness.client import Progress, measure
from harness.client.__main__ import _write_whole
from harness.load.options import LoadOptions
from harness.records.schema import EVENT_COLUMNS, REQUEST_COLUMNS
from tests.support.client_jobs import job, load, plan, quiet
from tests.support.command_line import ROOT
from tests.support.fixtures import ScriptedServer
from tests.support.processes import command_of
from tests.support.scripts import Script

ENDLESS = Script(tokens=100_000, itl_ms=5)


def most_in_flight(rows: pd.DataFrame) -> int:
    """From the client's own instants, which are of one clock."""
    changes = [(ns, 1) for ns in rows["sent_ns"]] + [(ns, -1) for ns in rows["end_ns"]]
    return int(np.cumsum([change for _, change in sorted(changes)]).max())


def clients() -> list[psutil.Process]:
    children = psutil.Process(os.getpid()).children(recursive=True)
    return [child for child in children if "harness.client" in command_of(child)]


def test_every_request_once_in_tables_like_those_of_one_worker(
    server: ScriptedServer, tmp_path: Path
) -> None:
    measured = measure(job(server.base_url, plan(41), tmp_path, load(concurrency=5), workers=2), quiet)
    rows, events = measured.requests, measured.events
    assert list(rows["index"]) == list(range(41)) and rows["ok"].all()
    assert sorted(int(entry["key"]) for entry in server.record()) == list(range(41))
    assert {name: str(dtype) for name, dtype in rows.dtypes.items()} == dict(REQUEST_COLUMNS)
    assert {name: str(dtype) for name, dtype in events.dtypes.items()} == dict(EVENT_COLUMNS)
    assert events["ns"].is_monotonic_increasing and len(events) == 41 * 5
    assert (events.groupby("index")["tokens"].sum() == 5).all()
    assert most_in_flight(rows) <= 5
    assert (measured.window_start_ns, measured.window_end_ns) == (
        rows["scheduled_ns"].min(),
        rows["end_ns"].max(),
    )
    assert measured.client["workers"] == 2 and len(measured.client["each_worker"]) == 2
    assert (measured.client["stamps"], measured.client["stamps_by_process"]) == ("kernel", 0)
    assert not measured.stopped_early and measured.client["failure"] is None
    # all slots opened at the one common instant
    assert (rows["scheduled_ns"] == measured.window_start_ns).sum() == 5


@pytest.mark.parametrize("name", ["constant", "poisson"])
def test_an_open_loop_keeps_its_instants(server: ScriptedServer, tmp_path: Path, name: str) -> None:
    options = load(name=name, rate=200.0, concurrency=None)
    offsets = []
    for workers in (1, 3):
        measured = measure(job(server.base_url, plan(60), tmp_path, options, seed=5, workers=workers), quiet)
        due = measured.requests["scheduled_ns"].astype("int64")
        assert measured.requests["ok"].all()
        offsets.append((due - due.min()).tolist())
    assert offsets[0] == offsets[1]


def test_sessions_stay_whole(server: ScriptedServer, tmp_path: Path) -> None:
    measured = measure(
        job(server.base_url, plan(30, turns=3, think_s=0.01), tmp_path, load(concurrency=4), workers=2), quiet
    )
    for _, turns in measured.requests.groupby("session"):
        assert list(turns["turn"]) == [0, 1, 2]
        assert (turns["scheduled_ns"].iloc[1:].to_numpy() >= turns["end_ns"].iloc[:-1].to_numpy()).all()


def test_a_bound_on_requests_in_flight_is_one_for_all(server: ScriptedServer, tmp_path: Path) -> None:
    """One worker takes all permits at some time: the first, whose requests are long, once the other has nothing left,
    or whichever was quicker to take those that the other gave back."""
    server.play(by_key={number: Script(tokens=20, itl_ms=3) for number in range(0, 60, 2)})
    options = load(name="constant", rate=1000.0, concurrency=3)
    measured = measure(job(server.base_url, plan(60), tmp_path, options, workers=2), quiet)
    rows = measured.requests
    assert rows["ok"].all() and most_in_flight(rows) == 3
    assert max(most_in_flight(part) for _, part in rows.groupby(rows["index"] % 2)) == 3


def test_all_close_at_the_same_instant(server: ScriptedServer, tmp_path: Path) -> None:
    options = load(concurrency=4, duration_s=0.5)
    measured = measure(job(server.base_url, plan(4000), tmp_path, options, workers=2), quiet)
    rows = measured.requests
    assert measured.window_end_ns - measured.window_start_ns == 500_000_000
    assert (rows["scheduled_ns"] <= measured.window_end_ns).all() and rows["ok"].all()
    assert {index % 2 for index in rows["index"]} == {0, 1}


def test_one_that_is_killed_ends_the_run_as_partial(server: ScriptedServer, tmp_path: Path) -> None:
    server.play(ENDLESS, by_key={number: Script() for number in range(10)})

    killed: list[psutil.Process] = []

    def kill(progress: Progress) -> None:
        if progress.finished == 10 and progress.in_flight == 4 and not killed:
            killed.append(clients()[1])
            killed[0].kill()

    measured = measure(job(server.base_url, plan(30), tmp_path, load(), workers=2), kill)
    assert measured.stopped_early and measured.client["failure"] and not measured.interrupted
    rows = measured.requests
    assert set(rows["error"].dropna()) == {"aborted"} and not clients()
    # the dead one's last second may be lost, the other's is not
    assert all(rows.set_index("index")["ok"].get(number, False) for number in range(0, 10, 2))


def test_an_interruption_ends_them_all(server: ScriptedServer, tmp_path: Path) -> None:
    server.play(ENDLESS, by_key={number: Script() for number in range(10)})

    def interrupt(progress: Progress) -> None:
        if progress.finished == 10 and progress.in_flight == 4:
            raise KeyboardInterrupt

    measured = measure(job(server.base_url, plan(30), tmp_path, load(), workers=2), interrupt)
    assert measured.interrupted and measured.client["failure"] is None and not clients()
    assert list(measured.requests["ok"]) == [True] * 10 + [False] * 4


def test_never_more_workers_than_slots(server: ScriptedServer, tmp_path: Path) -> None:
    options: LoadOptions = load(concurrency=1)
    measured = measure(job(server.base_url, plan(3), tmp_path, options, workers=4), quiet)
    assert measured.client["workers"] == 1 and measured.requests["ok"].all()


def test_more_streams_than_the_system_lets_a_process_open(tmp_path: Path) -> None:
    """With a hard limit of 300 files: 250 streams are too many for one process, and not for two."""
    code = f"""
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (300, 300))
from pathlib import Path
from harness.client.prepare import prepare
from harness.core.errors import UsageError
from tests.support.client_jobs import job, load, plan
for count, workers in ((250, 2), (100, 1), (250, 1)):
    options = load(concurrency=250)
    try:
        prepare(job("http://127.0.0.1:9", plan(count), Path({str(tmp_path)!r}), options, workers=workers))
        print(count, workers, "fine")
    except UsageError as error:
        print(count, workers, error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    fine, also_fine, refused = done.stdout.splitlines()
    assert fine.endswith("fine") and also_fine.endswith("fine")
    assert "ulimit -Hn" in refused and "load.workers" in refused and "300" in refused


def test_workers_that_end_at_once_write_results_of_their_own(tmp_path: Path) -> None:
    results = [tmp_path / name for name in ("measured.result", "measured.result.1", "measured.result.2")]
    barrier = threading.Barrier(len(results))

    def write(path: Path) -> None:
        for length in range(200):
            barrier.wait(timeout=60)
            _write_whole(path, path.name.encode() * length)
            assert path.read_bytes() == path.name.encode() * length

    with ThreadPoolExecutor(len(results)) as threads:
        list(threads.map(write, results))
