"""A calibration on the screen: a table of its readings, and the limits in words."""

from collections.abc import Sequence

from rich.table import Table

from harness.calibrate.errors import Spread
from harness.calibrate.kept import Capacity
from harness.calibrate.limits import MEAN_LIMIT_MS, holds
from harness.calibrate.loads import Reading

_WHO = {
    "client": "there the client reaches its limit",
    "server": "there the truth server reaches its own limit, so the client may take more",
    "search": "nothing higher was tried",
}


def tables(readings: Sequence[Reading]) -> tuple[Table, Table]:
    """Errors and costs, one line a load. An error is the client's figure less the server's."""
    errors = _empty("Error in ms: mean / p99 / largest", "TTFT", "event gap", "TPOT", "E2E")
    costs = _empty("Cost", "lag p99", "events a read", "client µs a token", "parsing µs a token", "note")
    for one in readings:
        spreads = (one.errors.ttft, one.errors.gap, one.errors.tpot, one.errors.e2e)
        errors.add_row(one.title, *map(_shown, spreads))
        lag = "" if one.lag_p99_ms is None else f"{one.lag_p99_ms:.2f} ms"
        cells = (f"{one.events_per_read:.2f}", f"{one.client_us:.1f}", f"{one.parse_us:.1f}")
        costs.add_row(one.title, lag, *cells, _note(one))
    return errors, costs


def _shown(spread: Spread) -> str:
    mean = round(spread.mean, 2) + 0.0  # no minus before a zero
    return f"{mean:.2f} / {spread.p99:.2f} / {spread.max:.1f}"


def _empty(title: str, *columns: str) -> Table:
    shown = Table(title=title, title_justify="left", box=None, pad_edge=False, title_style="bold")
    shown.add_column("", no_wrap=True)
    for name in columns:
        shown.add_column(name, justify="right", no_wrap=True)
    return shown


def _note(reading: Reading) -> str:
    if reading.server_saturated:
        return "server saturated"
    if reading.errors.lost:
        return f"{reading.errors.lost} lost"
    return "" if holds(reading) else "over its limit"


def sentences(readings: Sequence[Reading], capacity: Capacity) -> list[str]:
    """What the limits are and who set them, and what to do where the system made it worse than need be."""
    said = [
        f"This client measures up to {capacity.tokens_per_s:,.0f} tokens/s with a mean TTFT error of at most "
        f"{MEAN_LIMIT_MS:g} ms; {_WHO[capacity.tokens_limited_by]}.",
        f"It measures {capacity.streams:,} streams at once; {_WHO[capacity.streams_limited_by]}.",
    ]
    if readings and not all(one.realtime for one in readings):
        said.append(
            "The system refused real-time scheduling (it takes CAP_SYS_NICE): other programs delay the client."
        )
    return said
