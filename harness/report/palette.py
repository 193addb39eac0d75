"""Colours and dashes of every figure and legend."""

from typing import Any

# Okabe and Ito's palette, safe for colour-blindness; yellow last and darker than theirs, which is faint on white.
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f", "#cdbf00")
DASHES = ("solid", (0, (5, 2)), (0, (1.5, 1.5)), (0, (7, 2, 1.5, 2)))
DASH_ARRAYS = ("none", "5 2", "1.5 1.5", "7 2 1.5 2")
INK, PAPER = "#010203", "#fefefe"  # what is written with, and on


def series_style(position: int) -> dict[str, Any]:
    """Colour and dash of the n-th series; the same pair comes again only after 32."""
    return {
        "color": PALETTE[position % len(PALETTE)],
        "linestyle": DASHES[position // len(PALETTE) % len(DASHES)],
    }


def run_style(series: int) -> dict[str, Any]:
    """`series_style` of a series of runs, whose lines the page can hide with the runs."""
    return series_style(series) | {"gid": f"series-{series}"}
