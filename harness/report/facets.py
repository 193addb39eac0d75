"""By what the runs of a page can be told apart with one press: engine, model, workload, how they ended."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from harness.records.paths import pick
from harness.records.reader import Run
from harness.report.values import UNKNOWN


@dataclass(frozen=True, slots=True)
class Facet:
    """values: the different ones in order of appearance, each with its number of runs. of_run: a place in `values` by
    run id.
    """

    heading: str
    values: list[tuple[str, int]]
    of_run: dict[str, int]


def _configured(key: str) -> Callable[[Run], str]:
    return lambda run: str(pick(run.config, key) or UNKNOWN)


_FACETS: tuple[tuple[str, Callable[[Run], str]], ...] = (
    ("Engine", _configured("backend.name")),
    ("Workload", _configured("workload.name")),
    ("Model", _configured("model.name")),
    ("Outcome", lambda run: run.status),
)


def facets(runs: Sequence[Run]) -> list[Facet]:
    """Those that tell at least two of the runs apart."""
    found = []
    for heading, value_of in _FACETS:
        values = {run.id: value_of(run) for run in runs}
        counts = Counter(values.values())
        if len(counts) > 1:
            places = {value: place for place, value in enumerate(counts)}
            found.append(Facet(heading, list(counts.items()), {run: places[v] for run, v in values.items()}))
    return found
