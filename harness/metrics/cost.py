"""What the answers cost on this machine, where a price was given."""

from typing import Any

_SECONDS_PER_HOUR = 3600
_MILLION = 1_000_000


def cost_summary(summary: dict[str, Any], price_per_hour: float | None, currency: str) -> dict[str, Any]:
    """Cost per million output tokens and per query at the throughput of `summary`; {} without a price.

    price × hours / (million output tokens, or queries); a figure that would divide by nothing is None.
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
    }
