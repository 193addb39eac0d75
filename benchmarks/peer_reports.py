"""What each client's own report says, in common figures: pure functions of the JSON that it writes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Of = Literal["gaps", "requests"]


@dataclass(frozen=True, slots=True)
class Report:
    """One run as a client tells it; latencies in ms.

    itl_of: what its percentiles of inter-token latency are of, single gaps or each request's mean gap.
    """

    ttft_mean: float
    ttft_p99: float
    itl_mean: float
    itl_p99: float
    itl_of: Of
    completed: int


def guidellm(written: Mapping[str, Any]) -> Report:
    """The first benchmark of guidellm's `benchmarks.json`, its successful requests."""
    metrics = written["benchmarks"][0]["metrics"]
    ttft = metrics["time_to_first_token_ms"]["successful"]
    itl = metrics["inter_token_latency_ms"]["successful"]
    return Report(
        ttft_mean=ttft["mean"],
        ttft_p99=ttft["percentiles"]["p99"],
        itl_mean=itl["mean"],
        itl_p99=itl["percentiles"]["p99"],
        itl_of="requests",
        completed=metrics["request_totals"]["successful"],
    )


def aiperf(written: Mapping[str, Any]) -> Report:
    """aiperf's `profile_export_aiperf.json`."""
    ttft, itl = written["time_to_first_token"], written["inter_token_latency"]
    return Report(
        ttft_mean=ttft["avg"],
        ttft_p99=ttft["p99"],
        itl_mean=itl["avg"],
        itl_p99=itl["p99"],
        itl_of="requests",
        completed=round(written["request_count"]["avg"]),
    )


def vllm(written: Mapping[str, Any]) -> Report:
    """The result file of `vllm bench serve`."""
    return Report(
        ttft_mean=written["mean_ttft_ms"],
        ttft_p99=written["p99_ttft_ms"],
        itl_mean=written["mean_itl_ms"],
        itl_p99=written["p99_itl_ms"],
        itl_of="gaps",
        completed=written["completed"],
    )


def own(written: Mapping[str, Any]) -> Report:
    """What own_client.py writes: a report as it stands."""
    return Report(**written)
