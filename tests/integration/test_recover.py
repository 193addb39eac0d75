"""A command that is killed leaves no record; what its client had written becomes one, or is removed."""

import signal
from pathlib import Path

import pandas as pd
import pytest

from harness.client.journal import Kind, read_journal
from harness.records.reader import read_run
from tests.support.command_line import leftovers, records, run, start
from tests.support.fixtures import ScriptedServer
from tests.support.scripts import Script
from tests.support.waiting import wait_until

ANSWERED = 5


def answered(results: Path) -> int:
    """How many measured requests have ended, as far as the disk knows."""
    journals = (results / "runs").glob(".*/scratch/measured/measured.journal")
    return sum(kind == Kind.END for journal in journals for kind, *_ in read_journal(journal))


def recover(tmp_path: Path, *arguments: str) -> list[str]:
    done = run(["harness.recover", *arguments], tmp_path)
    assert done.status == 0, done.err
    return done.out.splitlines()


def test_a_killed_run_is_told_of_recovered_and_removed(server: ScriptedServer, tmp_path: Path):
    # A look at the server, the warm-up and five requests are answered; the others stream without end.
    server.play(Script(tokens=100_000, itl_ms=5), in_order=[Script()] * (2 + ANSWERED))
    results = tmp_path / "results"
    small = ["workload.turns=1", "workload.requests=12", "workload.prompt_tokens=160", "load.warmup=1"]
    command = ["harness", "backend=endpoint", f"backend.base_url={server.base_url}", *small]
    process = start([*command, "workload.output_tokens=5", "load.concurrency=2"], tmp_path)
    try:
        wait_until(lambda: answered(results) == ANSWERED, "five requests are answered")
        (folder,) = leftovers(results)
        run_id = folder.removeprefix(".").removesuffix(".writing")
        (line,) = [line for line in recover(tmp_path, "action=remove") if run_id in line]
        assert "left alone" in line and leftovers(results) == [folder]
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    wait_until(lambda: "left alone" not in recover(tmp_path)[0], "the client has ended too")
    report = run(["harness.report", "action=list"], tmp_path)
    assert "python -m harness.recover" in report.err and records(results) == []
    (line,) = recover(tmp_path, "action=recover")
    assert run_id in line and "partial: 5 requests were answered" in line
    assert leftovers(results) == []

    recovered = read_run(run_id, results)
    assert recovered.status == "partial" and "killed" in str(recovered.reason)
    assert recovered.summary["requests"]["ok"] == ANSWERED
    assert recovered.config["workload"]["requests"] == 12 and recovered.fingerprint["plan_sha256"]
    rows = recovered.requests.query("phase == 'measured'")
    assert list(rows["ok"]) == [True] * ANSWERED + [False] * 2
    assert list(rows["index"]) == list(range(ANSWERED + 2)) and set(rows["output_tokens_planned"]) == {5}
    assert (recovered.requests["phase"] == "warmup").sum() == 1
    counts = recovered.events.query("phase == 'measured'").groupby("index")["tokens"].sum()
    assert list(counts[:ANSWERED]) == [5] * ANSWERED
    assert pd.read_parquet(results / "runs" / run_id / "requests.parquet").shape[0] == ANSWERED + 3
    report = run(["harness.report"], tmp_path)
    assert report.status == 0 and "killed before" not in report.err
    assert recover(tmp_path) == ["There is no killed run in results/runs."]


@pytest.mark.parametrize(
    "arguments, named",
    [(["list"], "key=value"), (["run=1"], "results_dir"), (["action=mend"], "recover, remove")],
)
def test_bad_arguments_are_one_line(arguments: list[str], named: str, tmp_path: Path):
    done = run(["harness.recover", *arguments], tmp_path)
    assert done.status == 2 and named in done.err and len(done.err.splitlines()) == 1
