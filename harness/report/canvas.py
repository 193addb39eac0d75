"""Drawing with matplotlib, ready to stand inside a page: small SVG whose colours follow the page's theme.

Text stays text (the page's own font, selectable). Lines and words are drawn in placeholder colours that
become `currentColor` and CSS variables, so that one figure serves light, dark and print. Identifiers get a
prefix of their own, since several figures share one page.
"""

import io
import re
import textwrap
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette, safe for colour-blindness; yellow last and darker than theirs, which is faint on white.
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f", "#cdbf00")
DASHES = ("solid", (0, (5, 2)), (0, (1.5, 1.5)), (0, (7, 2, 1.5, 2)))
DASH_ARRAYS = ("none", "5 2", "1.5 1.5", "7 2 1.5 2")
INK, PAPER = "#010203", "#fefefe"  # what is written with, and on
WIDTH, HEIGHT = 5.0, 2.9  # inches; small, so that words stay legible on a phone
_RASTER_DPI = 160
_FILE_DPI = 200  # twice the 100 that a figure is laid out for
_TITLE, _LEGEND, _LINE = 11, 8.5, 0.185  # sizes in points, height of a line in inches
_TITLE_WIDTH, _LEGEND_WIDTH = 50, 72  # characters of a line
_TWO_COLUMNS = 30  # characters of the longest entry of a legend

_STYLE = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.sans-serif": [
        "DejaVu Sans"
    ],  # comes with matplotlib; each further name would be looked up for each word
    "figure.facecolor": "none",
    "axes.facecolor": "none",
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
    return _for_page(_as_svg(figure, prefix).decode(), prefix)


def to_files(figure: "Figure", name: str, title: str, legend: Mapping[int, str]) -> tuple[bytes, bytes]:
    """The figure as an SVG and a PNG that stand alone, on white, under its title and above its legend.

    legend: words by number of series. Adds both to the figure.
    """
    from matplotlib.lines import Line2D

    lines = textwrap.wrap(_printable(title), _TITLE_WIDTH)
    figure.suptitle("\n".join(lines), x=0.02, ha="left", fontsize=_TITLE, fontweight="bold", color=INK)
    added = len(lines) * _LINE * 1.25
    if legend:
        words = [textwrap.fill(_printable(text), _LEGEND_WIDTH) for text in legend.values()]
        columns = 2 if len(words) > 1 and max(map(len, words)) <= _TWO_COLUMNS else 1
        handles = [
            Line2D([], [], label=text, linewidth=1.7, **series_style(place))
            for place, text in zip(legend, words, strict=True)
        ]
        figure.legend(
            handles=handles, loc="outside lower left", ncols=columns, frameon=False, fontsize=_LEGEND,
            labelcolor=INK,
        )  # fmt: skip
        added += -(-sum(text.count("\n") + 1 for text in words) // columns) * _LINE
    figure.set_figheight(figure.get_figheight() + added)
    figure.set_facecolor("white")
    svg = _as_svg(figure, name)
    figure.set_layout_engine("none")  # all is in its place now
    return svg, _as_png(figure)


# Straight from the canvas: `Figure.savefig` would go through the whole drawing once more before each.


def _as_svg(figure: "Figure", salt: str) -> bytes:
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    buffer = io.BytesIO()
    with _saving(figure, {"svg.hashsalt": salt}):
        figure.set_dpi(_RASTER_DPI)
        FigureCanvasSVG(figure).print_svg(buffer, metadata={"Date": None})
    return buffer.getvalue()


def _as_png(figure: "Figure") -> bytes:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    buffer = io.BytesIO()
    with _saving(figure, {}):
        figure.set_dpi(_FILE_DPI)
        FigureCanvasAgg(figure).print_png(buffer, pil_kwargs={"compress_level": 3})
    return buffer.getvalue()


@contextmanager
def _saving(figure: "Figure", style: Mapping[str, Any]) -> Iterator[None]:
    """Words are shown as they are: no formula in them, and no complaint about letters that the font lacks."""
    import matplotlib

    legends = [*figure.legends, *(legend for axes in figure.axes if (legend := axes.get_legend()))]
    shown = [*figure.texts, *(text for legend in legends for text in legend.get_texts())]
    for axes in figure.axes:
        shown += [*axes.texts, axes.xaxis.label, axes.yaxis.label]
    for text in shown:
        text.set_parse_math(False)
        text.set_text("\n".join(map(_printable, text.get_text().split("\n"))))
    all_of_it: dict[Any, Any] = {**_STYLE, **style}
    with matplotlib.rc_context(all_of_it), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"Glyph \d+ .* missing from font")
        yield


def _printable(words: str) -> str:
    """Without what no drawing can show and no XML file may hold: control characters, halves of surrogate pairs."""
    return "".join(letter if letter.isprintable() else " " for letter in words)


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
    svg = svg.replace(INK, "currentColor").replace(PAPER, "var(--paper)")
    for position, colour in enumerate(PALETTE):
        svg = svg.replace(colour, f"var(--series-{position})")
    return re.sub(r"\n\s*", "\n", svg)
