"""The table of peers.py: medians of the readings of one case, a row for each client."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median

from benchmarks.peer_readings import Reading

_Column = tuple[str, Callable[[Reading], float], str]
_COLUMNS: Sequence[_Column] = (
    ("TTFT (ms), mean: true", lambda one: one.true_ttft_mean, "{:.2f}"),
    ("reported", lambda one: one.ttft_mean, "{:.2f}"),
    ("p99: true", lambda one: one.true_ttft_p99, "{:.2f}"),
    ("reported", lambda one: one.ttft_p99, "{:.2f}"),
    ("ITL, p99: error (ms)", lambda one: one.itl_p99 - one.true_itl_p99, "{:+.2f}"),
    ("CPU (µs/token)", lambda one: one.cpu_us, "{:.1f}"),
    ("tokens/s", lambda one: one.tokens_per_s, "{:,.0f}"),
    ("lost", lambda one: one.lost, "{:.0f}"),
)
_WITH_RANGE = ("reported", "CPU (µs/token)", "tokens/s")


def table(readings: Iterable[Reading], titles: Mapping[str, str], failures: Mapping[str, str]) -> str:
    """Markdown: medians, with the lowest and highest where several runs make a figure that differs.

    titles: of all clients in the table's order. failures: by client, for those that have a reason instead of figures.
    """
    readings = list(readings)
    lines = [
        "| client | runs | " + " | ".join(name for name, _, _ in _COLUMNS) + " |",
        "| --- " * (len(_COLUMNS) + 2) + "|",
    ]
    for client, title in titles.items():
        own = [one for one in readings if one.client == client]
        if own:
            cells = [_cell(name, list(map(value, own)), form) for name, value, form in _COLUMNS]
            lines.append(f"| {title} | {len(own)} | " + " | ".join(cells) + " |")
        elif client in failures:
            lines.append(f"| {title} | {failures[client].splitlines()[0].partition('. ')[0]} |")
    return "\n".join(lines)


def _cell(name: str, values: list[float], form: str) -> str:
    middle = form.format(median(values))
    if len(values) == 1 or name not in _WITH_RANGE:
        return middle
    return f"{middle} ({form.format(min(values))} … {form.format(max(values))})"
