"""Marks of axes: logarithmic ones that can be read, and whole numbers."""

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDE_RANGE = 15  # between smallest and largest value, from which an axis is logarithmic


def log_axis(axes: "Axes", which: Literal["x", "y"], doubling: bool = False) -> None:
    """Marks at 1, 2 and 5 of each decade, or 1, 2, 4, 8 …; each with its number and none without."""
    from matplotlib.ticker import LogLocator, NullLocator

    axes.set(**{f"{which}scale": "log"})
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_locator(LogLocator(base=2) if doubling else LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_locator(NullLocator())


def whole_numbers(axes: "Axes", which: Literal["x", "y"]) -> None:
    """No mark between whole numbers: of what is counted."""
    from matplotlib.ticker import MaxNLocator

    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_locator(MaxNLocator(integer=True))
