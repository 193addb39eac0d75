"""A whole command on the real engine, broken off in the middle."""

import signal
from pathlib import Path

import pandas as pd
import psutil
import pytest

from harness.client.journal import Kind, read_journal
from harness.core.model_store import ModelFiles
from tests.support.command_line import leftovers, records, start
from tests.support.processes import command_of
from tests.support.waiting import wait_until

pytestmark = pytest.mark.engine


def answered(results: Path) -> bool:
    """Whether a measured request has ended; the journal is on disk a second later at most."""
    journals = (results / "runs").glob(".*/scratch/measured/measured.journal")
    return any(kind == Kind.END for journal in journals for kind, *_ in read_journal(journal))


def test_an_engine_that_dies_while_measured_ends_the_run_and_keeps_what_came(
    model: ModelFiles, tmp_path: Path
) -> None:
    # An arrival every three seconds for ten minutes: nobody should wait for those that no engine will answer.
    overrides = ["load=constant", "load.rate=0.33", "load.duration_s=600", "workload.requests=200"]
    lengths = ["workload.turns=1", "workload.prompt_tokens=160", "workload.output_tokens=4", "load.warmup=1"]
    process = start(["harness", *overrides, *lengths], tmp_path)
    results = tmp_path / "results"
    wait_until(lambda: answered(results), "the first request is answered")
    family = psutil.Process(process.pid).children(recursive=True)
    engine = next(member for member in family if "backends.serving.worker" in command_of(member))
    engine.send_signal(signal.SIGKILL)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 1, err
    assert "The engine ended while it was measured" in err
    (record,) = records(results)
    assert record["status"] == "partial"
    assert record["summary"]["requests"]["ok"] >= 1
    assert {check["check"]: check["ok"] for check in record["validity"]}["engine_alive"] is False
    folder = results / "runs" / record["id"]
    assert len(pd.read_parquet(folder / "requests.parquet")) < 200
    assert "signal 9" in (folder / "engine.log").read_text()
    assert leftovers(results) == []
    _, alive = psutil.wait_procs(family, timeout=60)
    assert not alive
