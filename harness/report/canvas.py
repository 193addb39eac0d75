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
_TITLE, _LEGEND = 11, 8.5  # points
_TITLE_LINE, _LEGEND_ENTRY, _LEGEND_LINE, _GAP = (
    0.2,
    0.195,
    0.145,
    0.1,
)  # inches; an entry of a legend, each further line
_TITLE_WIDTH, _LEGEND_WIDTH = 50, 68  # characters of a line
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
    _lay_out(figure)
    return _for_page(_as_svg(figure, prefix).decode(), prefix)


def to_files(figure: "Figure", name: str, title: str, legend: Mapping[int, str]) -> tuple[bytes, bytes]:
    """The figure as an SVG and a PNG that stand alone, on white, under its title and above its legend.

    legend: words by number of series. Adds both to the figure.
    """
    _lay_out(figure)
    lines = textwrap.wrap(_printable(title), _TITLE_WIDTH)
    entries = {place: textwrap.fill(_printable(words), _LEGEND_WIDTH) for place, words in legend.items()}
    narrow = len(entries) > 1 and max(map(len, entries.values())) <= _TWO_COLUMNS
    rows = [words.count("\n") for words in entries.values()][:: 2 if narrow else 1]
    below = sum(_LEGEND_ENTRY + further * _LEGEND_LINE for further in rows) + (_GAP if rows else 0)
    _grow(figure, len(lines) * _TITLE_LINE + _GAP if lines else 0, below)
    height = figure.get_figheight()
    figure.text(
        0.02, 1 - _GAP / height, "\n".join(lines), fontsize=_TITLE, fontweight="bold", va="top", color=INK
    )
    if entries:
        _add_legend(figure, entries, 2 if narrow else 1)
    figure.set_facecolor("white")
    svg = re.sub(rb'<g id="series-\d+"', b"<g", _as_svg(figure, name))  # no identifier twice
    return svg, _as_png(figure)


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


def _add_legend(figure: "Figure", entries: Mapping[int, str], columns: int) -> None:
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], label=words, linewidth=1.7, **series_style(place)) for place, words in entries.items()
    ]
    figure.legend(
        handles=handles, loc="lower left", bbox_to_anchor=(0, 0), ncols=columns, frameon=False, fontsize=_LEGEND,
        labelcolor=INK, borderaxespad=0.2,
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
