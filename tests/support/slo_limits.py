"""An SLO with the limits named and no other."""

from dataclasses import fields
from typing import Any

from harness.metrics.slo import SloOptions


def slo(**limits: float | None) -> SloOptions:
    """`slo(ttft_p99_ms=500)`: everything else is null."""
    values: dict[str, Any] = {field.name: None for field in fields(SloOptions)}
    return SloOptions(**{**values, "name": "test", **limits})
