"""Lengths and pauses as the user writes them: a number, or an expression that names a distribution.

256                          always 256
"32..128"                    uniform, both ends included
"lognormal:64:0.8"           lognormal with median 64 and sigma 0.8 (natural log)
"lognormal:64:0.8:8:512"     the same, clipped to 8 … 512
"free", "free:256"           output only: the model may stop by itself (after 256 tokens at the latest)
"""

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

from harness.core.errors import UsageError
from workloads.streams import Stream

_FORMS = 'a number, "LOW..HIGH", "lognormal:MEDIAN:SIGMA" or "lognormal:MEDIAN:SIGMA:MIN:MAX"'


@dataclass(frozen=True, slots=True)
class Distribution:
    """A uniform distribution, or where `sigma` is set a lognormal one, clipped to low … high."""

    low: float
    high: float
    median: float = 0.0
    sigma: float | None = None

    def draw(self, stream: Stream) -> float:
        """One value, by inversion of the distribution function. A constant draws nothing."""
        if self.low == self.high:
            return self.low
        u = stream.uniform()
        if self.sigma is None:
            return self.low + u * (self.high - self.low)
        z = NormalDist().inv_cdf(min(max(u, 1e-12), 1 - 1e-12))
        return min(max(self.median * math.exp(self.sigma * z), self.low), self.high)

    def draw_int(self, stream: Stream) -> int:
        """One whole number; a uniform distribution gives each number from low to high equally often."""
        if self.sigma is None and self.low != self.high:
            return int(self.low) + stream.below(int(self.high) - int(self.low) + 1)
        return max(1, round(self.draw(stream)))


@dataclass(frozen=True, slots=True)
class OutputLength:
    """How long answers are: `fixed` is drawn and enforced; None lets the model stop by itself.

    maximum: where it stops at the latest (None: where the context ends).
    """

    fixed: Distribution | None
    maximum: int | None = None


def parse_length(key: str, value: Any) -> Distribution:
    """A distribution of token counts (whole numbers of at least 1). Raises UsageError that names `key`."""
    return _parse(key, value, whole=True, least=1)


def parse_seconds(key: str, value: Any) -> Distribution:
    """A distribution of seconds (at least 0). Raises UsageError that names `key`."""
    return _parse(key, value, whole=False, least=0)


def parse_output(key: str, value: Any) -> OutputLength:
    """An output length: as `parse_length`, or free, or free:MAX. Raises UsageError that names `key`."""
    if not (isinstance(value, str) and value.strip().split(":")[0] == "free"):
        return OutputLength(_parse(key, value, whole=True, least=1, also=', or "free", "free:MAX"'))
    parts = value.strip().split(":")
    if len(parts) == 1:
        return OutputLength(None)
    if len(parts) == 2 and parts[1].isdecimal() and int(parts[1]) >= 1:
        return OutputLength(None, int(parts[1]))
    raise UsageError(f'{key}={value}: expected "free" or "free:MAX" with MAX a whole number of at least 1.')


def _parse(key: str, value: Any, *, whole: bool, least: int, also: str = "") -> Distribution:
    def refuse(reason: str) -> UsageError:
        return UsageError(f"{key}={value}: {reason}. Use {_FORMS}{also}.")

    def number(text: str) -> float:
        try:
            parsed = float(text)
        except ValueError:
            raise refuse(f"{text!r} is no number") from None
        if not math.isfinite(parsed):
            raise refuse(f"{text!r} is not finite")
        return parsed

    def bound(text: str) -> float:
        parsed = number(text)
        if whole and parsed != int(parsed):
            raise refuse(f"{text} is no whole number")
        if parsed < least:
            raise refuse(f"{text} is less than {least}")
        return parsed

    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise refuse("that is no length" if whole else "that is no duration")
    text = str(value).strip()
    if text.startswith("lognormal:"):
        parts = text.split(":")[1:]
        if len(parts) not in (2, 4):
            raise refuse("lognormal takes two or four numbers")
        median, sigma = number(parts[0]), number(parts[1])
        if median <= 0 or sigma < 0:
            raise refuse("the median must be above 0 and sigma at least 0")
        low, high = (bound(parts[2]), bound(parts[3])) if len(parts) == 4 else (float(least), math.inf)
        if low > high:
            raise refuse("MIN is above MAX")
        return Distribution(low, high, median, sigma)
    if ".." in text:
        low, high = (bound(part) for part in text.split("..", 1))
        if low > high:
            raise refuse("LOW is above HIGH")
        return Distribution(low, high)
    fixed = bound(text)
    return Distribution(fixed, fixed)
