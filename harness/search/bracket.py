"""Where to look next for the highest value that meets a limit, and what was found: pure functions of what was tried.

Doubling until one value met and one missed (halving where the first misses), then bisection until the two are
within the tolerance, then a repeat at the answer. One miss makes a value a miss, whatever another probe of it said;
a repeat that misses therefore sends the search down again.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tried:
    """A value and whether it met."""

    value: float
    met: bool


@dataclass(frozen=True, slots=True)
class Rules:
    """first: where to begin. most: highest value (None: no bound). tolerance: relative. probes: at most.

    whole: only whole numbers of at least 1 are values. least: below it nothing is tried but `first`.
    """

    first: float
    most: float | None
    tolerance: float
    probes: int
    whole: bool
    least: float = 0.0


@dataclass(frozen=True, slots=True)
class Found:
    """value: the highest that met below every miss, None where none did. missed: the lowest that missed, or None.

    repeated: it met more than once. narrow: nothing between the two is left to try by the rules (or value is the
    highest allowed).
    """

    value: float | None
    missed: float | None
    repeated: bool
    narrow: bool


def next_value(tried: Sequence[Tried], rules: Rules) -> float | None:
    """The value of the next probe; None where the search is over."""
    if len(tried) >= rules.probes:
        return None
    if not tried:
        return rules.first
    found = found_by(tried, rules)
    last = len(tried) == rules.probes - 1
    if found.value is not None and (found.narrow or last):
        return None if found.repeated else found.value
    return _between(found.value, found.missed, rules)


def found_by(tried: Sequence[Tried], rules: Rules) -> Found:
    """What the probes so far say."""
    missed = min((probe.value for probe in tried if not probe.met), default=None)
    meeting = [probe.value for probe in tried if probe.met and (missed is None or probe.value < missed)]
    value = max(meeting, default=None)
    return Found(value, missed, meeting.count(value) > 1 if value else False, _narrow(value, missed, rules))


def _narrow(value: float | None, missed: float | None, rules: Rules) -> bool:
    if value is None:
        return missed is not None and _lowest(missed, rules)
    if missed is None:
        return rules.most is not None and value >= rules.most
    return missed <= value * (1 + rules.tolerance) or (rules.whole and missed - value <= 1)


def _lowest(missed: float, rules: Rules) -> bool:
    """Whether nothing may be tried below a miss."""
    return missed == 1 if rules.whole else missed / 2 < rules.least


def _between(value: float | None, missed: float | None, rules: Rules) -> float | None:
    if missed is None:
        doubled = 2 * (value or rules.first)
        return doubled if rules.most is None else min(doubled, rules.most)
    if value is None and _lowest(missed, rules):
        return None
    middle = missed / 2 if value is None else (value + missed) / 2
    return float(max(1, int(middle))) if rules.whole else middle
