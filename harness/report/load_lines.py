"""What a report draws over the load: each engine and setting as a line of points, one a load that it was given."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from statistics import median
from typing import Any

from harness.compare.conf_files import recorded_slo, usual_attainment
from harness.compare.slo_held import held
from harness.metrics.slo import SloOptions, limits_of, percentile_limits_of
from harness.records.paths import pick
from harness.records.reader import Run
from harness.records.searches import RecordedSearch
from harness.records.spoilt import spoiling
from harness.report.labels import SIZE_OF_WORKLOAD, differing_options, option_words, served_labels
from harness.report.table import error_count
from harness.report.values import flatten

AT_ONCE, RATE = "sessions in flight", "sessions/s"
_BY_RATE = ("constant", "poisson", "gamma")


@dataclass(frozen=True)
class Point:
    """One setting at one load. runs: complete ones, and any that ended early.

    missed: whether the median run that has an SLO misses it; None where none has, or not the same.
    errors: failed requests of all runs. limited: keys of the percentile limits that every run of its line has.
    """

    load: float
    runs: tuple[Run, ...]
    missed: bool | None
    errors: int
    limited: frozenset[str] = frozenset()

    def figure(self, path: str) -> float | None:
        """Median over the runs that have it; a limited percentile counts failed requests as infinitely slow.

        None where nobody has it, and where the median is such a failed request.
        """
        values = [_value(run, path, self.limited) for run in self.runs]
        known = [value for value in values if value is not None]
        middle = median(known) if known else inf
        return None if middle == inf else float(middle)

    def doubtful(self, paths: Sequence[str]) -> bool:
        """Whether a run of it ended early, or failed a check that spoils one of these figures."""
        return any(run.status != "complete" or spoiling(run, paths) for run in self.runs)


@dataclass(frozen=True)
class Line:
    """One setting over its loads, by increasing load. unit: AT_ONCE or RATE."""

    label: str
    unit: str
    points: tuple[Point, ...]

    @property
    def ids(self) -> list[str]:
        """Of its runs."""
        return [run.id for point in self.points for run in point.runs]


@dataclass(frozen=True)
class Question:
    """All lines of which the same was asked of the same model. name: unique among the questions of a report."""

    name: str
    title: str
    lines: tuple[Line, ...]

    @property
    def slo(self) -> SloOptions | None:
        """That of all runs that have one; None where they differ."""
        return _common_slo([run for line in self.lines for point in line.points for run in point.runs])

    def of(self, unit: str) -> tuple[Line, ...]:
        """The lines over loads of this unit."""
        return tuple(line for line in self.lines if line.unit == unit)


def questions(runs: Sequence[Run], searches: Sequence[RecordedSearch] = ()) -> list[Question]:
    """One for each thing that was asked, by its first run; a load that changes within a run is left out.

    searches: those that runs were probes of, which say what share of requests had to keep the limits.
    """
    needed = {probe.run: one.needed for one in searches for probe in one.probes if one.needed is not None}
    asked: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        if run.status in ("complete", "partial") and run.summary and _load(run) is not None:
            asked[_asked(run)].append(run)
    by_workload: dict[str, list[list[Run]]] = defaultdict(list)
    for members in asked.values():
        by_workload[str(pick(members[0].config, "workload.name") or "")].append(members)
    found = {}
    for workload, groups in by_workload.items():
        told = _told_apart([members[0] for members in groups])
        for number, (members, words) in enumerate(zip(groups, told, strict=True), 1):
            name = f"{workload}-{number}" if len(groups) > 1 else workload
            found[members[0].id] = Question(name, f"{workload}{words}", _lines(members, needed))
    return [found[members[0].id] for members in asked.values()]


def _lines(runs: Sequence[Run], needed: Mapping[str, float]) -> tuple[Line, ...]:
    labels = served_labels(runs)
    arrivals = {str(pick(run.config, "load.name")) for run in runs}
    grouped: dict[tuple[str, str], dict[float, list[Run]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        unit, load = _load(run) or ("", 0.0)
        told = f" · {pick(run.config, 'load.name')}" if len(arrivals) > 1 else ""
        grouped[labels[run.id] + told, unit][load].append(run)
    found = []
    for (label, unit), by_load in grouped.items():
        limits = [_limited(run) for members in by_load.values() for run in members]
        limited = frozenset.intersection(*limits)
        points = [_point(load, by_load[load], needed, limited) for load in sorted(by_load)]
        found.append(Line(label, unit, tuple(points)))
    return tuple(found)


def _point(load: float, runs: Sequence[Run], needed: Mapping[str, float], limited: frozenset[str]) -> Point:
    """Shares of requests are held against what the search of these runs asked, else against the usual one."""
    asked = {needed.get(run.id, usual_attainment()) for run in runs}
    judged = [run for run in runs if _slo(run) is not None]
    limits = held(judged, _common_slo(judged), max(asked))
    missed = any(not limit.met for limit in limits) if limits else None
    return Point(load, tuple(runs), missed, sum(error_count(run) or 0 for run in runs), limited)


def _load(run: Run) -> tuple[str, float] | None:
    """The unit and the size of the load that a run was given all the time; None where it changed."""
    load: Mapping[str, Any] = run.config.get("load") or {}
    unit, value = (RATE, load.get("rate")) if load.get("name") in _BY_RATE else (AT_ONCE, None)
    if load.get("name") == "closed":
        value = load.get("concurrency")
    return None if value is None else (unit, float(value))


def _asked(run: Run) -> str:
    """What tells questions apart: the workload but for how much of it, and the model."""
    workload = flatten({"workload": run.config.get("workload") or {}})
    telling = {key: value for key, value in workload.items() if key not in SIZE_OF_WORKLOAD}
    model = run.fingerprint.get("model_sha256") or pick(run.config, "model.name")
    return repr((sorted(telling.items(), key=lambda item: item[0]), model))


def _told_apart(runs: Sequence[Run]) -> list[str]:
    """Words that tell questions of one workload apart, by the first run of each: what differs in workload and model.

    "" for the only one. Numbered where that is not enough (models of one name).
    """
    if len(runs) == 1:
        return [""]
    keys = [
        key
        for key in differing_options(runs)
        if key.startswith(("workload.", "model.")) and key not in SIZE_OF_WORKLOAD
    ]
    words = [", ".join(option_words(run, keys)) for run in runs]
    if len(set(words)) < len(words):
        words = [", ".join(filter(None, (told, f"#{place}"))) for place, told in enumerate(words, 1)]
    return [f" ({told})" for told in words]


def _slo(run: Run) -> SloOptions | None:
    """None also for one without any limit."""
    recorded = run.config.get("slo")
    slo = recorded_slo(recorded) if recorded else None
    return slo if slo is not None and (limits_of(slo) or percentile_limits_of(slo)) else None


def _common_slo(runs: Sequence[Run]) -> SloOptions | None:
    """That of the runs that have one, where it is the same."""
    found = [slo for run in runs if (slo := _slo(run)) is not None]
    return found[0] if found and all(slo == found[0] for slo in found) else None


def _limited(run: Run) -> frozenset[str]:
    return frozenset(limit["key"] for limit in run.summary.get("slo_percentiles") or [])


def _value(run: Run, path: str, limited: frozenset[str]) -> float | None:
    """path: `ttft_ms.p95` and the like; where that percentile is limited, the value that was held against it."""
    latency, _, percentile = path.rpartition(".")
    key = f"{latency.removesuffix('_ms')}_{percentile}_ms"
    for limit in run.summary.get("slo_percentiles") or []:
        if limit["key"] == key and key in limited:
            value = limit["value_ms"]
            return inf if value is None and not limit["met"] else value
    found = pick(run.summary, path)
    return None if found is None else float(found)
