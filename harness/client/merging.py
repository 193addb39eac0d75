"""What several workers found out about themselves, as one."""

from collections.abc import Sequence
from typing import Any

_SUMMED = (
    "cpu_s",
    "preempted",
    "peak_memory_bytes",
    "connections_ready",
    "connections_opened",
    "connections_closed_idle",
    "reconnects",
    "stamps_by_process",
)
_LARGEST = ("cpu_share", "lag_max_ms", "lag_p99_ms")  # the worst worker's: a mean would hide it
_EACH = ("cpu_s", "cpu_share", "lag_max_ms", "lag_p99_ms", "cpus", "failure")


def merged_result(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The results of all workers (empty where one left none): sums, worst cases, and each worker's own figures."""
    known = [result for result in results if result]
    if len(results) == 1 or not known:
        return {**results[0], "workers": len(results)}
    merged = dict(known[0])
    for name in _SUMMED:
        merged[name] = sum(result.get(name) or 0 for result in known)
    for name in _LARGEST:
        values = [result[name] for result in known if result.get(name) is not None]
        merged[name] = max(values) if values else None
    merged["gc_enabled"] = any(result.get("gc_enabled") for result in known)
    kernel = all(result.get("stamps") == "kernel" for result in known)
    merged["stamps"] = "kernel" if kernel else "process"
    compiled = all(result.get("reader") == "compiled" for result in known)
    merged["reader"] = "compiled" if compiled else "python"
    merged["realtime"] = all(result.get("realtime") for result in known)
    merged["cpus"] = sorted({cpu for result in known for cpu in result.get("cpus") or ()})
    merged["stopped"] = any(result.get("stopped") for result in known)
    merged["failure"] = next((result["failure"] for result in known if result.get("failure")), None)
    ends = [result["end_ns"] for result in known if result.get("end_ns") is not None]
    merged["start_ns"] = min(result["start_ns"] for result in known)
    merged["end_ns"] = min(ends) if ends else None
    merged["workers"] = len(results)
    merged["each_worker"] = [{name: result.get(name) for name in _EACH} for result in results]
    return merged


def cores_used(client: dict[str, Any]) -> float | None:
    """CPU cores that a client used inside its window, all its workers together; None where nobody knows."""
    parts = client.get("each_worker") or [client]
    shares = [part["cpu_share"] for part in parts if part.get("cpu_share") is not None]
    return float(sum(shares)) if shares else None
