"""The heat map of a plan: how full the memory is by context length and requests at once."""

from harness.plan.planning import Plan
from harness.report.canvas import HEIGHT, drawing, to_svg
from harness.report.palette import INK, PALETTE

_FITS, _TOO_MUCH = PALETTE[0], PALETTE[1]
_WORDS_PT = 6.5
_UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def heat_map(plan: Plan) -> str:
    """An `<svg>`: each field says the bytes of weights and KV; deeper blue is fuller, orange does not fit.

    Shades are opacities of the page's own colours, so that they serve light and dark alike.
    """
    from matplotlib.patches import Rectangle

    s, contexts, users = plan.setting, [row.context for row in plan.rows], plan.grid_users
    figure, (axes,) = drawing(height=HEIGHT * 1.15)
    for column, context in enumerate(contexts):
        for row, count in enumerate(users):
            needed = s.needed_bytes(count, context)
            share = needed / s.usable_bytes
            fits = s.fits(count, context)
            axes.add_patch(
                Rectangle(
                    (column - 0.5, row - 0.5),
                    1,
                    1,
                    facecolor=_FITS if fits else _TOO_MUCH,
                    alpha=0.1 + 0.55 * share if fits else 0.28,
                    linewidth=0,
                )
            )
            axes.text(column, row, short(needed), ha="center", va="center", fontsize=_WORDS_PT, color=INK)
            if (count, context) == (plan.wish.users, plan.wish.context):
                axes.add_patch(
                    Rectangle(
                        (column - 0.47, row - 0.47), 0.94, 0.94, fill=False, edgecolor=INK, linewidth=1.4
                    )
                )
    axes.set(xlim=(-0.5, len(contexts) - 0.5), ylim=(-0.5, len(users) - 0.5))
    axes.set_xticks(range(len(contexts)), [_thousands(context) for context in contexts])
    axes.set_yticks(range(len(users)), [f"{count:,}" for count in users])
    axes.set(xlabel="tokens a request holds", ylabel="requests at once")
    axes.grid(visible=False)
    axes.tick_params(length=0, labelsize=8)
    for spine in axes.spines.values():
        spine.set_visible(False)
    return to_svg(figure, "capacity")


def short(count: float) -> str:
    """Bytes in at most four characters and a unit: 14.5G, 1.3T."""
    for size, unit in _UNITS:
        if count >= 0.9995 * size:
            value = count / size
            return f"{value:.0f}{unit}" if value >= 99.95 else f"{value:.1f}{unit}"
    return f"{count:.0f}"


def _thousands(tokens: int) -> str:
    return f"{tokens // 1024}k" if tokens % 1024 == 0 else f"{tokens:,}"
