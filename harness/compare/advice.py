"""Which setting to take: the cheapest of those that keep the limits, by how much, and how sure that is."""

from collections.abc import Sequence
from dataclasses import dataclass

from harness.compare.asked import Asked
from harness.compare.groups import Figure
from harness.compare.settings import COST, RATE, Setting, Terms, costs_of, settings_of
from harness.compare.statistics import Verdict, verdict
from harness.records.paths import pick

_FALSE_ALARMS = 0.05  # of the one comparison that decides: the best against the next
_LEAST_EFFECT = 0.03  # a smaller relative difference does not matter


@dataclass(frozen=True)
class Advice:
    """What the runs of one workload and model say.

    by: COST, or RATE where not every setting has a price in one currency. ranked: the settings that may be taken, the
    best first, ties by name. excluded: the others. verdict: of the best with the next as baseline, None with fewer
    than two. alike: others whose difference to the best is smaller than matters.
    """

    asked: Asked
    terms: Terms
    by: str
    currency: str
    ranked: tuple[Setting, ...]
    excluded: tuple[Setting, ...]
    verdict: Verdict | None
    alike: tuple[str, ...]

    @property
    def best(self) -> Setting | None:
        """The first of those that may be taken."""
        return self.ranked[0] if self.ranked else None

    def figure(self, setting: Setting) -> Figure:
        """What a setting is ranked by; every one that may be taken has it."""
        found = setting.cost.get(COST) if self.by == COST else setting.rate
        if found is None:
            raise ValueError(f"{setting.label} has no {self.by}")
        return found


def advise(found: Asked, terms: Terms) -> Advice:
    """Rank the settings of what was asked."""
    settings = settings_of(found, terms)
    sound = [setting for setting in settings if setting.rate is not None]
    currencies = {costs_of(run, terms).get("currency") for setting in sound for run in setting.runs}
    priced = len(currencies) == 1 and None not in currencies and all(COST in one.cost for one in sound)
    by = COST if sound and priced else RATE
    eligible = [setting for setting in sound if setting.eligible]

    def middle(setting: Setting) -> float:
        figure = setting.cost[COST] if by == COST else setting.rate
        return figure.middle if figure is not None else 0.0

    sign = 1 if by == COST else -1
    ranked = sorted(eligible, key=lambda setting: (sign * middle(setting), setting.label))
    excluded = sorted(
        (setting for setting in settings if not setting.eligible), key=lambda setting: setting.label
    )
    alike = [
        other.label for other in ranked[1:] if abs(middle(other) / middle(ranked[0]) - 1) < _LEAST_EFFECT
    ]
    return Advice(
        asked=found,
        terms=terms,
        by=by,
        currency=str(next(iter(currencies))) if by == COST else "",
        ranked=tuple(ranked),
        excluded=tuple(excluded),
        verdict=_decided(ranked, by, terms),
        alike=tuple(alike),
    )


def _decided(ranked: Sequence[Setting], by: str, terms: Terms) -> Verdict | None:
    if len(ranked) < 2:
        return None
    best, second = ([[value] for value in _values(setting, by, terms)] for setting in ranked[:2])
    return verdict(second, best, by == RATE, _LEAST_EFFECT, _FALSE_ALARMS)


def _values(setting: Setting, by: str, terms: Terms) -> list[float]:
    if by == COST:
        return [value for run in setting.runs if (value := costs_of(run, terms).get(COST))]
    return [value for run in setting.runs if (value := pick(run.summary, RATE))]
