"""What the answers cost on this machine, where a price was given."""

from collections.abc import Mapping
from typing import Any

_SECONDS_PER_HOUR = 3600
_MILLION = 1_000_000
_MS = 1000


def concurrent_users(window: Mapping[str, Any], summary: Mapping[str, Any]) -> float | None:
    """How many users a run served at once.

    In a closed loop the sessions in flight that it aimed at (`concurrency` of the window's record), whose think
    time counts: a user who reads is still one; and no more than there were `sessions` at all. Elsewhere requests
    in flight on average, by Little's law (1961): successful requests per second × their mean time from the
    schedule to the last token. None where neither is known.
    """
    if target := window.get("concurrency"):
        return (
            float(min(target, summary.get("sessions") or target)) if summary.get("requests_per_s") else None
        )
    rate, latency = summary.get("requests_per_s"), (summary.get("e2e_ms") or {}).get("mean")
    return rate * latency / _MS if rate and latency else None


def cost_summary(
    summary: Mapping[str, Any], price_per_hour: float | None, currency: str, users: float | None
) -> dict[str, Any]:
    """Cost per million output tokens, per query and per user-hour at the throughput of `summary`; {} without a price.

    price × hours / (million output tokens, or queries); a user-hour is what one of the `users` served at once costs
    for an hour: price / users. A figure that would divide by nothing is None.
    """
    if price_per_hour is None:
        return {}
    price_per_s = price_per_hour / _SECONDS_PER_HOUR
    tokens_per_s, requests_per_s = summary.get("output_tokens_per_s"), summary.get("requests_per_s")
    return {
        "currency": currency,
        "price_per_hour": price_per_hour,
        "per_million_output_tokens": price_per_s * _MILLION / tokens_per_s if tokens_per_s else None,
        "per_query": price_per_s / requests_per_s if requests_per_s else None,
        "per_user_hour": price_per_hour / users if users else None,
    }
