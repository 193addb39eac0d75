"""Marks of axes, as matplotlib draws them."""

import pytest

from harness.report.axis import log_axis, whole_numbers
from harness.report.canvas import drawing


def marks(low: float, high: float, doubling: bool = False) -> list[str]:
    figure, (axes,) = drawing()
    axes.plot([1, 2], [low, high])
    log_axis(axes, "y", doubling)
    figure.draw_without_rendering()
    assert axes.yaxis.get_minorticklocs().size == 0
    bottom, top = axes.get_ylim()
    ticks = zip(axes.get_yticks(), axes.get_yticklabels(), strict=True)
    return [label.get_text() for place, label in ticks if bottom <= place <= top]


@pytest.mark.parametrize(
    ("low", "high", "told"),
    [
        (30, 800, ["50", "100", "200", "500"]),
        (0.3, 6, ["0.5", "1", "2", "5"]),
        (1.5, 4000, ["2", "5", "10", "20", "50", "100", "200", "500", "1000", "2000", "5000"]),
    ],
)
def test_a_logarithmic_axis_has_several_marks_each_with_its_number(low: float, high: float, told: list[str]):
    assert marks(low, high) == told


def test_loads_are_doubled_from_mark_to_mark():
    assert marks(1, 64, doubling=True) == ["1", "2", "4", "8", "16", "32", "64"]


def test_what_is_counted_has_whole_numbers():
    figure, (axes,) = drawing()
    axes.plot([1, 3], [1, 2])
    whole_numbers(axes, "x")
    figure.draw_without_rendering()
    assert all(float(place).is_integer() for place in axes.get_xticks())
