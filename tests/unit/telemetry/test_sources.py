import mmap
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from harness.core.tls import Trust
from harness.telemetry.sources import EngineMetrics, NvidiaGpu, ProcessTree, RaplEnergy, SystemCpu

# A parent that holds memory and one child that holds more; both wait for a line.
HOLDERS = """
import subprocess, sys
block = b"x" * int(sys.argv[1])
if len(sys.argv) > 2:
    child = subprocess.Popen([sys.executable, "-c", sys.argv[3], sys.argv[2]], stdin=subprocess.PIPE)
print("ready", flush=True)
sys.stdin.read()
"""
CHILD = 'import sys; block = b"x" * int(sys.argv[1]); print("ready", flush=True); sys.stdin.read()'


def test_memory_of_the_whole_tree_is_counted():
    one, two = 40_000_000, 70_000_000
    command = [sys.executable, "-c", HOLDERS, str(one), str(two), CHILD]
    parent = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert parent.stdout.readline() == b"ready\n"
        assert parent.stdout.readline() == b"ready\n"
        values = ProcessTree(parent.pid).read()
        assert values["pss_bytes"] >= one + two
        assert values["pss_bytes"] < one + two + 60_000_000  # two interpreters are far smaller than that
        assert values["engine_cpu_s"] > 0
    finally:
        parent.stdin.close()
        parent.wait()
        parent.stdout.close()


def test_shared_pages_are_counted_once():
    size = 64_000_000
    shared = mmap.mmap(-1, size)
    shared.write(b"x" * size)
    pid = os.fork()
    if pid == 0:
        for place in range(0, size, mmap.PAGESIZE):
            shared[place]  # maps the page into this process too
        os.kill(os.getpid(), 19)  # stop here, holding the pages
        os._exit(0)
    os.waitpid(pid, os.WUNTRACED)
    try:
        proportional = ProcessTree(pid).read()["pss_bytes"]
        resident = psutil.Process(pid).memory_info().rss
        assert proportional <= resident - 0.45 * size  # half of the shared block, not all of it
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        shared.close()


def test_a_tree_that_is_gone_reads_nothing():
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    assert ProcessTree(done.pid).read() == {}


def test_metrics_of_a_server_that_is_gone_are_absent():
    assert EngineMetrics("http://127.0.0.1:1/metrics", {}, lambda text: {"x": 1.0}, Trust()).read() == {}


@pytest.mark.parametrize(
    ("ours", "held", "known"),
    [
        ({1, 2}, {1: 100, 2: 20, 3: 4}, 120),
        ({1}, {3: 4}, 0),  # ours are known, and hold nothing
        (set(), {3: 4}, None),  # somebody else's server: nobody knows which processes are its
        ({1}, {1: None}, None),  # the driver does not tell
    ],
)
def test_gpu_memory_that_nobody_knows_is_absent_not_zero(
    monkeypatch: pytest.MonkeyPatch, ours: set[int], held: dict[int, int | None], known: int | None
):
    # Stands in for the driver, which only a machine with a GPU has.
    nvml = SimpleNamespace(
        nvmlInit=lambda: None,
        nvmlDeviceGetCount=lambda: 1,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetComputeRunningProcesses=lambda device: [
            SimpleNamespace(pid=pid, usedGpuMemory=held[pid]) for pid in held
        ],
        nvmlDeviceGetUtilizationRates=lambda device: SimpleNamespace(gpu=50),
    )
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    values = NvidiaGpu(lambda: ours).read()
    assert values.get("gpu_bytes") == known
    assert values["gpu_utilisation"] == 0.5


def _zone(root: Path, name: str, microjoules: int) -> Path:
    zone = root / name
    zone.mkdir(parents=True)
    (zone / "energy_uj").write_text(f"{microjoules}\n")
    (zone / "max_energy_range_uj").write_text("1000000\n")
    return zone


def test_energy_sums_packages_and_survives_the_wrap(tmp_path: Path):
    first, second = _zone(tmp_path, "intel-rapl:0", 900_000), _zone(tmp_path, "intel-rapl:1", 0)
    _zone(tmp_path, "intel-rapl:0:0", 5)  # a part of package 0: counted in it already
    energy = RaplEnergy(tmp_path)
    assert energy.read() == {"energy_j": 0.0}
    (first / "energy_uj").write_text("100000\n")  # wrapped: 0.2 J further
    (second / "energy_uj").write_text("300000\n")
    assert energy.read()["energy_j"] == pytest.approx(0.5)


def test_no_counters_is_absent_not_zero(tmp_path: Path):
    with pytest.raises(OSError, match="no RAPL"):
        RaplEnergy(tmp_path)


def test_the_machine_is_at_least_as_busy_as_one_of_its_processes():
    system = SystemCpu()
    before, own_before = system.read()["system_cpu_s"], time.process_time()
    while time.process_time() - own_before < 0.5:
        pass
    own = time.process_time() - own_before
    # The kernel counts the machine's time in hundredths of a second.
    assert system.read()["system_cpu_s"] - before >= own - 0.05
