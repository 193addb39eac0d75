"""Drawing with matplotlib, ready to stand inside a page: small SVG whose colours follow the page's theme.

Text stays text (the page's own font, selectable). Lines and words are drawn in placeholder colours that
become `currentColor` and CSS variables, so that one figure serves light, dark and print. Identifiers get a
prefix of their own, since several figures share one page.
"""

import io
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette, safe for colour-blindness; yellow last, as it is faint on white.
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f", "#f0e442")
DASHES = ("solid", (0, (5, 2)), (0, (1.5, 1.5)), (0, (7, 2, 1.5, 2)))
DASH_ARRAYS = ("none", "5 2", "1.5 1.5", "7 2 1.5 2")
INK = "#010203"
WIDTH, HEIGHT = 5.0, 2.9  # inches; small, so that words stay legible on a phone
_RASTER_DPI = 160

_STYLE = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9.5,
    "axes.labelsize": 9.5,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": INK,
    "grid.alpha": 0.13,
    "grid.linewidth": 0.6,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "lines.linewidth": 1.7,
    "lines.solid_joinstyle": "round",
    "path.simplify": True,
    "axes.formatter.use_mathtext": False,
}


def series_style(position: int) -> dict[str, Any]:
    """Colour and dash of the n-th series; the same pair comes again only after 32."""
    return {
        "color": PALETTE[position % len(PALETTE)],
        "linestyle": DASHES[position // len(PALETTE) % len(DASHES)],
    }


def run_style(series: int) -> dict[str, Any]:
    """`series_style` of a series of runs, whose lines the page can hide with the runs."""
    return series_style(series) | {"gid": f"series-{series}"}


def drawing(panels: int = 1, height: float = HEIGHT) -> "tuple[Figure, list[Axes]]":
    """A figure of panels one below the other that share their x axis."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_STYLE):  # type: ignore[arg-type]
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        axes = figure.subplots(panels, 1, sharex=True, squeeze=False)[:, 0]
    return figure, list(axes)


def to_svg(figure: "Figure", prefix: str) -> str:
    """The figure as an `<svg>` element without width and height; `prefix` makes its identifiers unique."""
    import matplotlib

    buffer = io.StringIO()
    with matplotlib.rc_context(_STYLE | {"svg.hashsalt": prefix}):  # type: ignore[arg-type]
        figure.savefig(buffer, format="svg", transparent=True, dpi=_RASTER_DPI, metadata={"Date": None})
    return _for_page(buffer.getvalue(), prefix)


def _for_page(document: str, prefix: str) -> str:
    svg = document[document.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<style[^>]*>.*?</style>", "", svg, flags=re.DOTALL)  # would apply to the whole page
    svg = re.sub(r"<!--.*?-->\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    svg = svg.replace("<svg", '<svg aria-hidden="true" focusable="false"', 1)
    svg = re.sub(
        r'<g id="series-(\d+)"', r'<g data-series="\1"', svg
    )  # several lines share one: no identifier
    svg = re.sub(r'\bid="', f'id="{prefix}-', svg)
    svg = re.sub(r'href="#', f'href="#{prefix}-', svg)
    svg = re.sub(r"url\(#", f"url(#{prefix}-", svg)
    svg = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font-size: \1", svg)
    svg = svg.replace(INK, "currentColor")
    for position, colour in enumerate(PALETTE):
        svg = svg.replace(colour, f"var(--series-{position})")
    return re.sub(r"\n\s*", "\n", svg)
