"""What a report draws over the load: each engine and setting as a line of points, one a load that it was given."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from statistics import median
from typing import Any

from harness.compare.conf_files import recorded_slo, usual_attainment
from harness.compare.slo_held import held
from harness.metrics.slo import SloOptions
from harness.records.paths import pick
from harness.records.reader import Run
from harness.records.spoilt import spoiling
from harness.report.labels import served_labels
from harness.report.table import error_count

AT_ONCE, RATE = "sessions in flight", "sessions/s"
_BY_RATE = ("constant", "poisson", "gamma")


@dataclass(frozen=True)
class Point:
    """One setting at one load. runs: complete ones, and such as were ended early because the server fell behind.

    missed: whether the median run misses its SLO; None where there is none, or not the same for all of them.
    errors: failed requests of all runs.
    """

    load: float
    runs: tuple[Run, ...]
    missed: bool | None
    errors: int

    def figure(self, path: str) -> float | None:
        """Median over the runs that have it; a limited percentile counts failed requests as infinitely slow.

        None where nobody has it, and where the median is such a failed request.
        """
        known = [value for run in self.runs if (value := _value(run, path)) is not None]
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
        """That of all runs; None where they differ or have none."""
        return _common_slo([run for line in self.lines for point in line.points for run in point.runs])

    def of(self, unit: str) -> tuple[Line, ...]:
        """The lines over loads of this unit."""
        return tuple(line for line in self.lines if line.unit == unit)


def questions(runs: Sequence[Run]) -> list[Question]:
    """One for each thing that was asked, by its first run; a load that changes within a run is left out."""
    asked: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        if run.status in ("complete", "partial") and run.summary and _load(run) is not None:
            asked[_asked(run)].append(run)
    workloads = [str(pick(members[0].config, "workload.name") or "") for members in asked.values()]
    found = []
    for place, (workload, members) in enumerate(zip(workloads, asked.values(), strict=True)):
        number = workloads[: place + 1].count(workload)
        several = workloads.count(workload) > 1
        words = _lengths(members[0]) if several else ""
        name = f"{workload}-{number}" if several else workload
        found.append(Question(name, f"{workload}{words}", _lines(members)))
    return found


def _lines(runs: Sequence[Run]) -> tuple[Line, ...]:
    labels = served_labels(runs)
    arrivals = {str(pick(run.config, "load.name")) for run in runs}
    grouped: dict[tuple[str, str], dict[float, list[Run]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        unit, load = _load(run) or ("", 0.0)
        told = f" · {pick(run.config, 'load.name')}" if len(arrivals) > 1 else ""
        grouped[labels[run.id] + told, unit][load].append(run)
    return tuple(
        Line(label, unit, tuple(_point(load, by_load[load]) for load in sorted(by_load)))
        for (label, unit), by_load in grouped.items()
    )


def _point(load: float, runs: Sequence[Run]) -> Point:
    limits = held(runs, _common_slo(runs), usual_attainment())
    missed = any(not limit.met for limit in limits) if limits else None
    return Point(load, tuple(runs), missed, sum(error_count(run) or 0 for run in runs))


def _load(run: Run) -> tuple[str, float] | None:
    """The unit and the size of the load that a run was given all the time; None where it changed."""
    load: Mapping[str, Any] = run.config.get("load") or {}
    unit, value = (RATE, load.get("rate")) if load.get("name") in _BY_RATE else (AT_ONCE, None)
    if load.get("name") == "closed":
        value = load.get("concurrency")
    return None if value is None else (unit, float(value))


def _asked(run: Run) -> str:
    """What tells questions apart: the workload but for how many requests of it, and the model."""
    workload = {key: value for key, value in (run.config.get("workload") or {}).items() if key != "requests"}
    model = run.fingerprint.get("model_sha256") or pick(run.config, "model.name")
    return repr((sorted(workload.items(), key=lambda item: item[0]), model))


def _lengths(run: Run) -> str:
    """Words that tell questions of one workload apart: its lengths, and the model."""
    prompt, output = (pick(run.config, f"workload.{key}") for key in ("prompt_tokens", "output_tokens"))
    parts = [
        f"{prompt} + {output} tokens" if prompt and output else "",
        str(pick(run.config, "model.name") or ""),
    ]
    return f" ({', '.join(part for part in parts if part)})"


def _common_slo(runs: Sequence[Run]) -> SloOptions | None:
    limits = [run.config.get("slo") for run in runs]
    return (
        recorded_slo(limits[0]) if limits and limits[0] and all(one == limits[0] for one in limits) else None
    )


def _value(run: Run, path: str) -> float | None:
    """path: `ttft_ms.p95` and the like; where that percentile has a limit, the value that was held against it."""
    key = f"{path.removesuffix(path.rpartition('.')[2]).removesuffix('_ms.')}_{path.rpartition('.')[2]}_ms"
    for limit in run.summary.get("slo_percentiles") or []:
        if limit["key"] == key:
            value = limit["value_ms"]
            return inf if value is None and not limit["met"] else value
    found = pick(run.summary, path)
    return None if found is None else float(found)
