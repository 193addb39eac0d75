"""Drawing with matplotlib, ready to stand inside a page: small SVG whose colours follow the page's theme.

Text stays text (the page's own font, selectable). Lines and words are drawn in placeholder colours that
become `currentColor` and CSS variables, so that one figure serves light, dark and print. Identifiers get a
prefix of their own, since several figures share one page.
"""

import io
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from harness.report.alone import GAP, LEGEND, LINE_WIDTH, TITLE, Surroundings, printable
from harness.report.palette import INK, PALETTE, PAPER, series_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, HEIGHT = 5.0, 2.9  # inches; small, so that words stay legible on a phone
_POINTS = 72  # of an inch
_RASTER_DPI = 160
_FILE_DPI = 200  # twice the 100 that a figure is laid out for

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


def drawing(panels: int = 1, height: float = HEIGHT) -> "tuple[Figure, list[Axes]]":
    """A figure of panels one below the other that share their x axis."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_STYLE):  # type: ignore[arg-type]
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        axes = figure.subplots(panels, 1, sharex=True, squeeze=False)[:, 0]
    return figure, list(axes)


def to_document(figure: "Figure", prefix: str) -> str:
    """The figure as an SVG document of matplotlib's, from which the forms are made that people see.

    prefix: makes its identifiers the same in every report.
    """
    _lay_out(figure)
    return _as_svg(figure, prefix).decode()


def to_svg(figure: "Figure", prefix: str) -> str:
    """The figure as an `<svg>` element without width and height; `prefix` makes its identifiers unique."""
    return for_page(to_document(figure, prefix), prefix)


def to_png(figure: "Figure", around: Surroundings) -> bytes:
    """The figure on white, under its title and above its legend. To be called last: the figure keeps both."""
    _lay_out(figure)
    _grow(figure, around.above / _POINTS, around.below / _POINTS)
    figure.text(
        0.02, 1 - GAP / _POINTS / figure.get_figheight(), "\n".join(around.title),
        fontsize=TITLE, fontweight="bold", va="top", color=INK,
    )  # fmt: skip
    if around.entries:
        _add_legend(figure, around)
    figure.set_facecolor("white")
    return _as_png(figure)


def _lay_out(figure: "Figure") -> None:
    """Once and for all: a layout takes as long as a drawing."""
    with _saving(figure, {}):
        if (engine := figure.get_layout_engine()) is not None:
            engine.execute(figure)
        figure.set_layout_engine("none")


def _grow(figure: "Figure", above: float, below: float) -> None:
    """Room above and below in inches; what is drawn keeps its size, so nothing has to be laid out again."""
    before = figure.get_figheight()
    after = before + above + below
    places = [axes.get_position() for axes in figure.axes]
    figure.set_figheight(after)
    for axes, place in zip(figure.axes, places, strict=True):
        bottom, height = (place.y0 * before + below) / after, place.height * before / after
        axes.set_position((place.x0, bottom, place.width, height))


def _add_legend(figure: "Figure", around: Surroundings) -> None:
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], label="\n".join(lines), linewidth=LINE_WIDTH, **series_style(place))
        for place, lines in around.entries.items()
    ]
    figure.legend(
        handles=handles, loc="lower left", bbox_to_anchor=(0, 0), ncols=around.columns, frameon=False,
        fontsize=LEGEND, labelcolor=INK, borderaxespad=0.2,
    )  # fmt: skip


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
        text.set_text("\n".join(map(printable, text.get_text().split("\n"))))
    all_of_it: dict[Any, Any] = {**_STYLE, **style}
    with matplotlib.rc_context(all_of_it), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"Glyph \d+ .* missing from font")
        yield


def for_page(document: str, prefix: str) -> str:
    """A document of matplotlib's as an element whose colours follow the page, with identifiers of its own."""
    svg = document[document.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<style[^>]*>.*?</style>", "", svg, flags=re.DOTALL)  # would apply to the whole page
    svg = re.sub(r"<!--.*?-->\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    svg = svg.replace("<svg", '<svg aria-hidden="true" focusable="false"', 1)
    svg = re.sub(r"<[^>]+>", lambda found: _tag_for_page(found.group(), prefix), svg)  # no word between tags
    return re.sub(r"\n\s*", "\n", svg)


def _tag_for_page(tag: str, prefix: str) -> str:
    tag = re.sub(
        r'<g id="series-(\d+)"', r'<g data-series="\1"', tag
    )  # several lines share one: no identifier
    tag = re.sub(r'\bid="', f'id="{prefix}-', tag)
    tag = re.sub(r'href="#', f'href="#{prefix}-', tag)
    tag = re.sub(r"url\(#", f"url(#{prefix}-", tag)
    tag = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font-size: \1", tag)
    tag = tag.replace(INK, "currentColor").replace(PAPER, "var(--paper)")
    for position, colour in enumerate(PALETTE):
        tag = tag.replace(colour, f"var(--series-{position})")
    return tag
