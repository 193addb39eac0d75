"""benchmarks/peers.py: what each client's own file says, beside the server's log, and the cost of a process tree.

The files under reports/ are of real runs of 128 requests × 100 tokens on 16 streams, cut down. What they are expected
to say is what the same run's screen showed (aiperf, vLLM), or its requests one by one (guidellm).
"""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import peer_reports, tree_cpu
from benchmarks.peer_readings import Reading, reading_of, tokens_sent
from benchmarks.peer_reports import Report
from benchmarks.peer_runs import Case
from benchmarks.peer_table import table
from benchmarks.peer_tools import TOOLS, Job
from harness.calibrate.loads import Load
from harness.calibrate.log import TrueLog, TrueRequest
from harness.core.errors import HarnessError

REPORTS = Path(__file__).parent / "reports"
MS = 1_000_000


@pytest.mark.parametrize(
    ("client", "expected"),
    [
        ("guidellm", Report(32.30229, 50.33898, 19.99953, 20.06772, "requests", 128)),
        ("aiperf", Report(36.75, 56.97, 20.09, 20.40, "requests", 128)),
        ("vllm", Report(34.47, 50.10, 20.01, 23.64, "gaps", 128)),
    ],
)
def test_a_report_says_what_the_client_showed(client: str, expected: Report):
    tool = next(tool for tool in TOOLS if tool.name == client)
    report = tool.report(json.loads((REPORTS / f"{client}.json").read_text()))
    assert (report.itl_of, report.completed) == (expected.itl_of, expected.completed)
    for name in ("ttft_mean", "ttft_p99", "itl_mean", "itl_p99"):
        assert getattr(report, name) == pytest.approx(getattr(expected, name), abs=0.0051), name


def test_our_own_report_is_read_as_it_was_written():
    fields = {
        "ttft_mean": 1.0,
        "ttft_p99": 2.0,
        "itl_mean": 3.0,
        "itl_p99": 4.0,
        "itl_of": "gaps",
        "completed": 5,
    }
    assert peer_reports.own(fields) == Report(1.0, 2.0, 3.0, 4.0, "gaps", 5)


def streamed(received_ms: float, ttft_ms: float, gaps_ms: list[float]) -> TrueRequest:
    sends = np.array((np.cumsum([received_ms + ttft_ms, *gaps_ms])) * MS, dtype=np.int64)
    return TrueRequest("", round(received_ms * MS), 0, len(sends), sends)


# A trial request that some clients send first, then two of the load's own, 3 tokens each.
LOG = TrueLog(
    20 * MS, 0, [streamed(0, 500, [1, 1]), streamed(1000, 20, [10, 30]), streamed(1010, 40, [20, 40])]
)
LOAD = Load("", requests=2, tokens=3, itl_us=20_000)


@pytest.mark.parametrize(("itl_of", "true_p99"), [("gaps", 39.7), ("requests", 29.9)])
def test_a_reading_is_of_the_loads_own_requests(itl_of: peer_reports.Of, true_p99: float):
    report = Report(33.0, 55.0, 26.0, 44.0, itl_of, completed=1)
    reading = reading_of("light", "vllm", report, LOG, LOAD, cpu_us=80.0)
    assert reading.true_ttft_mean == pytest.approx(30.0)
    assert reading.true_ttft_p99 == pytest.approx(39.8)
    assert reading.true_itl_mean == pytest.approx(25.0)
    assert reading.true_itl_p99 == pytest.approx(true_p99)
    assert reading.tokens_per_s == pytest.approx(6 / 0.110)
    assert reading.lost == 1
    assert (reading.ttft_mean, reading.itl_p99, reading.cpu_us) == (33.0, 44.0, 80.0)
    assert tokens_sent(LOG) == 9


def test_a_run_in_which_nothing_was_streamed_whole_has_no_reading():
    cut = TrueLog(20 * MS, 0, [TrueRequest("", 0, 0, 3, np.array([MS]))])
    with pytest.raises(HarnessError, match="streamed no request"):
        reading_of("light", "vllm", Report(1, 1, 1, 1, "gaps", 0), cut, LOAD, 0.0)


def a_reading(client: str, cpu_us: float) -> Reading:
    return Reading("5k", client, 7.0, 9.0, 3.0, 4.0, 5.0, 6.0, 3.0, 3.5, "gaps", cpu_us, 4900.0, 0)


def test_the_table_has_medians_ranges_and_what_is_missing():
    readings = [a_reading("own", cpu) for cpu in (12.0, 10.0, 14.0)] + [a_reading("vllm", 80.0)]
    titles = {"own": "this project", "guidellm": "guidellm 0.8.1", "vllm": "vLLM"}
    lines = table(readings, titles, {"guidellm": "not installed: guidellm==0.8.1. Do this."}).splitlines()
    columns = [cell.strip() for cell in lines[0].split("|")]
    assert {len(line.split("|")) for line in (lines[0], lines[1], lines[2], lines[4])} == {len(columns)}
    assert lines[2].split("|")[columns.index("CPU (µs/token)")].strip() == "12.0 (10.0 … 14.0)"
    assert lines[2].split("|")[columns.index("ITL, p99: error (ms)")].strip() == "+0.50"
    assert lines[3] == "| guidellm 0.8.1 | not installed: guidellm==0.8.1 |"
    assert "80.0 |" in lines[4]


def test_a_peer_that_is_not_there_says_how_to_install_it(tmp_path: Path):
    for tool in TOOLS[1:]:
        with pytest.raises(HarnessError, match=f"not installed: {tool.name}=={tool.version}.*pip install"):
            tool.check_installed(tmp_path)
    TOOLS[0].check_installed(tmp_path)


def test_another_version_is_not_taken(tmp_path: Path):
    interpreter = tmp_path / "guidellm" / "bin" / "python"
    interpreter.parent.mkdir(parents=True)
    interpreter.write_text("#!/bin/sh\necho 0.7.0\n")
    interpreter.chmod(0o755)
    with pytest.raises(HarnessError, match=r"guidellm==0\.8\.1 \(there is 0\.7\.0\)"):
        TOOLS[1].check_installed(tmp_path)


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_every_client_is_told_the_load_and_has_its_pins(tool, tmp_path: Path):
    job = Job(Load("", 384, 78, 3200), 16, "http://127.0.0.1:1", tmp_path / "tokenizer", tmp_path)
    command = tool.command(job, tmp_path)
    words = " ".join(command)
    assert command[0] == str(tool.python(tmp_path))
    assert all(told in words for told in ("http://127.0.0.1:1", "384", "78", "16", str(tmp_path)))
    if tool.version is not None:
        pins = (Path(peer_reports.__file__).parent / "peers" / f"{tool.name}.txt").read_text().splitlines()
        assert any(f"{name}=={tool.version}" in pins for name in tool.distributions)


def test_the_most_that_a_case_can_be_sent():
    # 2 streams, each 4 tokens in 5 ms + half of 10 ms + 3 × 10 ms = 40 ms
    assert Case("", "", Load("", 8, 4, 10_000, 5_000), 2).most_tokens_per_s == pytest.approx(200.0)


def test_the_cpu_time_of_a_tree_includes_what_its_root_left_behind(tmp_path: Path):
    """The root ends at once; its child, in a session of its own, works on and says what it used."""
    works = (
        "import os, sys, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    while time.process_time() < 0.2: pass\n"
        "    open(sys.argv[1], 'w').write(repr(time.process_time()))\n"
        "else:\n"
        "    os._exit(3)\n"
    )
    out, told = tmp_path / "cpu", tmp_path / "told"
    command = [sys.executable, tree_cpu.__file__, str(out), sys.executable, "-c", works, str(told)]
    assert subprocess.run(command, check=False, timeout=60).returncode == 3
    assert float(out.read_text()) >= float(told.read_text()) >= 0.2
