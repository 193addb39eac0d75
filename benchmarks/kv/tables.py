"""The readings as Markdown tables: speed by context and batch, quality beside bytes held, and the targets."""

from collections.abc import Iterator, Sequence
from statistics import median

from benchmarks.kv import quality
from benchmarks.kv.intervals import Interval
from benchmarks.kv.readings import Readings
from benchmarks.kv.settings import Named
from benchmarks.kv.targets import Target


def speed_table(readings: Readings) -> str:
    """Medians of the rounds, with the lowest and highest."""
    cells: dict[tuple[str, int, int], dict[tuple[str, str], list[float]]] = {}
    for case in ("decode", "prefill"):
        for one in readings.of(case):
            where = (case, one["context"], one.get("batch", 1))
            cells.setdefault(where, {}).setdefault((one["who"], one["name"]), []).append(one["seconds"])
    lines = [
        "| | context | batch | | rounds | CPU seconds (lowest … highest) | tokens/s |",
        "| --- " * 7 + "|",
    ]
    for (case, context, batch), settings in sorted(cells.items()):
        for (who, name), values in settings.items():
            rate = (batch if case == "decode" else context) / median(values)
            spread = f"{median(values):.4g} ({min(values):.4g} … {max(values):.4g})"
            shown = f"{who}: {name}"
            lines.append(
                f"| {case} | {context} | {batch} | {shown} | {len(values)} | {spread} | {rate:.1f} |"
            )
    return "\n".join(lines)


def quality_table(readings: Readings, settings: Sequence[tuple[Named, Named]], half: str) -> str:
    """settings: each with the full cache of its own implementation."""
    lines = [
        "| | MB held | perplexity over full | needle, question unseen | question known |",
        "| --- " * 5 + "|",
    ]
    for named, full in settings:
        held = quality.held_bytes(readings, named, half)
        recalls = [quality.recall(readings, named, half, seen) for seen in (False, True)]
        ratio = quality.ratio_to_full(readings, named, full, half)
        if held is None and not any(recalls):
            continue
        cells = [
            f"{named.who}: {named.name}",
            "" if held is None else f"{held / 1e6:.2f}",
            "" if ratio is None else _interval(ratio, -1.0, "{:+.2%}"),
            *("" if one is None else _interval(one, 0.0, "{:.0%}") for one in recalls),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def target_table(targets: Sequence[Target]) -> str:
    """One row each."""
    lines = ["| target | measured | |", "| --- | --- | --- |"]
    lines += [f"| {one.wanted} | {one.measured or 'not measured'} | {_verdict(one)} |" for one in targets]
    return "\n".join(lines)


def missed(targets: Sequence[Target], cases: Sequence[str]) -> Iterator[Target]:
    """Those of these cases that are not met, or were not measured."""
    return (one for one in targets if one.case in cases and not one.met)


def _verdict(target: Target) -> str:
    return "" if target.met is None else "met" if target.met else "missed"


def _interval(value: Interval, plus: float, form: str) -> str:
    middle, low, high = (form.format(one + plus) for one in (value.value, value.low, value.high))
    return f"{middle} ({low} … {high})"
