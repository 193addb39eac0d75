"""What can be looked at while an engine serves: its processes, its own metrics, the GPU, the energy counters."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil

from backends.http_calls import Unreachable, get
from harness.core.tls import Trust

_TREE_REFRESH_S = 2.0
_METRICS_TIMEOUT_S = 2.0


class ProcessTree:
    """PSS and CPU time of a process and all its descendants.

    PSS (proportional set size) divides shared pages among their users, so the sum over a tree counts each page
    once. CPU time of processes that ended stays in the sum.
    """

    weight = 4.0  # the kernel walks every page of every process for it

    def __init__(self, root_pid: int) -> None:
        self._root = root_pid
        self._members: dict[int, psutil.Process] = {}
        self._cpu_s: dict[int, float] = {}
        self._refresh_at = 0.0

    def read(self) -> dict[str, float]:
        """pss_bytes and engine_cpu_s; {} once the tree is gone."""
        if time.monotonic() >= self._refresh_at:
            self._find_members()
        pss = 0
        for pid, process in list(self._members.items()):
            try:
                pss += _pss_bytes(pid)
                times = process.cpu_times()
                self._cpu_s[pid] = times.user + times.system
            except (psutil.Error, OSError):
                del self._members[pid]
        return {"pss_bytes": pss, "engine_cpu_s": sum(self._cpu_s.values())} if self._members else {}

    def _find_members(self) -> None:
        try:
            root = psutil.Process(self._root)
            self._members = {process.pid: process for process in (root, *root.children(recursive=True))}
        except psutil.Error:
            self._members = {}
        self._refresh_at = time.monotonic() + _TREE_REFRESH_S

    def pids(self) -> set[int]:
        """The processes seen at the last look."""
        return set(self._members)


def _pss_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0


class EngineMetrics:
    """The engine's own /metrics, mapped to the common names by its adapter."""

    weight = 1.0

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str],
        to_common_names: Callable[[str], dict[str, float]],
        trust: Trust,
    ) -> None:
        self._url, self._headers, self._trust = url, headers, trust
        self._to_common_names = to_common_names

    def read(self) -> dict[str, float]:
        """Gauges and counters by common name; {} where the engine has no such page."""
        try:
            reply = get(self._url, self._headers, _METRICS_TIMEOUT_S, self._trust)
            return self._to_common_names(reply.body.decode("utf-8", "replace")) if reply.status == 200 else {}
        except (Unreachable, ValueError):
            return {}


class NvidiaGpu:
    """GPU memory of the given processes, and utilisation, through NVML."""

    weight = 1.0

    def __init__(self, pids: Callable[[], set[int]]) -> None:
        import pynvml

        pynvml.nvmlInit()
        self._nvml: Any = pynvml
        self._pids = pids
        self._devices = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]

    def read(self) -> dict[str, float]:
        """gpu_bytes over all devices and gpu_utilisation (their mean, 0 to 1).

        No gpu_bytes where the engine's processes are not known (somebody else's server), or where the driver
        does not say what one of them holds.
        """
        pids = self._pids()
        used: int | None = 0 if pids else None
        busy = 0
        for device in self._devices:
            for process in self._nvml.nvmlDeviceGetComputeRunningProcesses(device):
                if process.pid in pids and used is not None:
                    used = None if process.usedGpuMemory is None else used + process.usedGpuMemory
            busy += self._nvml.nvmlDeviceGetUtilizationRates(device).gpu
        known = {} if used is None else {"gpu_bytes": used}
        return {**known, "gpu_utilisation": busy / 100 / len(self._devices)}


class RaplEnergy:
    """Joules of all CPU packages since the first look (Linux powercap); the counters wrap around."""

    weight = 1.0
    _ROOT = Path("/sys/class/powercap")

    def __init__(self, root: Path = _ROOT) -> None:
        self._zones = sorted(
            zone
            for zone in root.glob("intel-rapl:*")
            if zone.name.count(":") == 1 and (zone / "energy_uj").exists()
        )
        if not self._zones:
            raise OSError("no RAPL zones")
        self._last = {zone: self._microjoules(zone) for zone in self._zones}  # raises where not readable
        self._sum_uj = 0

    @staticmethod
    def _microjoules(zone: Path) -> int:
        return int((zone / "energy_uj").read_text())

    def read(self) -> dict[str, float]:
        """energy_j since this object was made."""
        for zone in self._zones:
            now = self._microjoules(zone)
            step = now - self._last[zone]
            if step < 0:
                step += int((zone / "max_energy_range_uj").read_text())
            self._sum_uj += step
            self._last[zone] = now
        return {"energy_j": self._sum_uj / 1e6}


class SystemCpu:
    """CPU time of everything that runs on this machine."""

    weight = 0.5

    def read(self) -> dict[str, float]:
        """system_cpu_s: seconds that any core was busy, waiting for a disk and idling left out."""
        times = psutil.cpu_times()
        # guest time is part of user and nice already
        busy = times.user + times.nice + times.system + times.irq + times.softirq + times.steal
        return {"system_cpu_s": busy}


def optional_sources(pids: Callable[[], set[int]]) -> list[Any]:
    """The machine's CPU; GPU and energy, where this machine has them and lets them be read."""
    found: list[Any] = [SystemCpu()]
    for make in (lambda: NvidiaGpu(pids), RaplEnergy):
        try:
            found.append(make())
        except Exception:  # NVML raises its own family; absent is absent, never 0
            continue
    return found
