"""What a run was: everything that could explain a difference between two runs.

Fields named in `harness.records.schema.IDENTITY` say *what was measured*: runs that differ there are not comparable.
All others are context: a comparison lists their differences.
"""

import os
import platform
import subprocess
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

from harness.core.model_store import ModelFiles
from harness.core.requests import Plan
from harness.cores import CoreShares

_PACKAGES = ("inference-harness", "aiohttp", "httptools", "hydra-core", "numpy", "tokenizers", "uvloop")


def fingerprint(
    plan: Plan, model: ModelFiles, engine_versions: dict[str, str], cores: CoreShares
) -> dict[str, Any]:
    """All fields of one run, JSON-ready."""
    return {
        "plan_sha256": plan.sha256(),
        "workload": plan.workload,
        "seed": plan.seed,
        "sources": plan.sources,
        "model": model.name,
        "model_sha256": model.sha256,
        "geometry": asdict(model.geometry),
        "notes": list(model.notes),
        "engine": engine_versions,
        "harness": {name: _version(name) for name in _PACKAGES},
        "harness_commit": _commit(),
        "python": platform.python_version(),
        "machine": machine(),
        "cores": {"engine": cores.engine, "client": cores.client, "harness": cores.harness},
    }


def machine() -> dict[str, Any]:
    """CPU, memory, GPUs, kernel and frequency governor."""
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "gpus": _gpus(),
        "kernel": platform.release(),
        "system": platform.system(),
        "governor": _read(Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")),
    }


def _cpu_model() -> str:
    for line in (_read(Path("/proc/cpuinfo")) or "").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _gpus() -> list[str]:
    try:
        import pynvml

        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
        return [str(pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(i))) for i in range(count)]
    except Exception:  # no driver, no GPU
        return []


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _commit() -> str | None:
    """Commit of the harness's own checkout, with a mark where files differ from it; None when installed."""
    here = Path(__file__).resolve().parent.parent
    if not (here / ".git").exists():
        return None
    try:
        done = subprocess.run(
            ["git", "-C", str(here), "describe", "--always", "--dirty", "--abbrev=12"],
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None
