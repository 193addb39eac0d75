"""Numbers as people read them: three significant digits, one unit, a dash for what is not known."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MISSING = "–"
UNKNOWN = "not known"  # where there is room for words
_BYTE_UNITS = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


@dataclass(frozen=True, slots=True)
class Amount:
    """A figure as it is shown, and the number that it sorts by: None where it is not known."""

    text: str
    value: float | None


def number(value: float | None) -> str:
    """1234.5 → 1,234; 12.345 → 12.3; 0.01234 → 0.0123."""
    if value is None or value != value:
        return MISSING
    if value == 0:
        return "0"
    size = abs(value)
    if size >= 99.95:
        return f"{value:,.0f}"
    return f"{value:.1f}" if size >= 9.995 else f"{value:.2f}" if size >= 0.995 else f"{value:.3g}"


def money(amount: float | None) -> str:
    """Three digits, never an exponent, which nobody reads as a price: 1,234; 12.3; 0.900; 0.0000123."""
    if amount is None or not 0 < abs(amount) < 0.995:
        return number(amount)
    return f"{amount:.{2 - math.floor(math.log10(abs(amount)))}f}"


def duration(milliseconds: float | None) -> str:
    """A length of time with its unit: 80.0 ms, 1.24 s."""
    if milliseconds is None:
        return MISSING
    return f"{number(milliseconds)} ms" if milliseconds < 1000 else f"{number(milliseconds / 1000)} s"


def percent(share: float | None) -> str:
    """A share of 1 as a percentage: 0.953 → 95 %."""
    return MISSING if share is None else f"{100 * share:.0f} %"


def signed(value: float, decimals: int = 1) -> str:
    """Rounded, with its sign, which a zero does not have: −1.5, +0.2, 0.0, ∞, −∞."""
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    rounded = f"{abs(value):.{decimals}f}"
    return rounded if float(rounded) == 0 else f"{'−' if value < 0 else '+'}{rounded}"


def against_limit(check: Mapping[str, Any]) -> str:
    """What a validity check found and what its limit was: 8 successful requests (limit 10)."""
    value, limit, unit = check.get("value"), check.get("limit"), str(check.get("unit") or "")
    if unit.startswith("of ") and value is not None and limit is not None:  # a share
        return f"{number(100 * value)} % {unit} (limit {number(100 * limit)} %)"
    return f"{_whole_or_number(value)} {unit} (limit {_whole_or_number(limit)})"


def _whole_or_number(value: float | None) -> str:
    return f"{value:,.0f}" if value is not None and float(value).is_integer() else number(value)


def two_decimals(value: float | None) -> str:
    """For values whose small differences matter: 19.57."""
    return MISSING if value is None else f"{value:,.2f}"


def memory(count: float | None) -> str:
    """Bytes in decimal units: 6.91 MB."""
    if count is None:
        return MISSING
    for size, unit in _BYTE_UNITS:
        if count >= size:
            return f"{number(count / size)} {unit}"
    return f"{number(count)} B"


def flatten(record: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested keys as dotted paths, in order; lists and empty mappings stay as they are."""
    flat: dict[str, Any] = {}
    for key, value in record.items():
        if isinstance(value, Mapping) and value:
            flat.update(flatten(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def listed(words: list[str]) -> str:
    """a; a and b; a, b and c."""
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} and {words[-1]}"


def plain_markdown(text: str) -> str:
    """Text on one line that Markdown and the HTML in it show as it is."""
    for special in "\\|*_`[]":
        text = text.replace(special, f"\\{special}")
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("\n", " ")
