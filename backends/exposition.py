"""Reading the text that servers give at /metrics (Prometheus) into the project's common names."""

import math
from collections.abc import Iterator, Mapping

from prometheus_client.parser import text_string_to_metric_families

from harness.core.metric_names import COUNTERS, GAUGES, PREFIX

_OWN = {PREFIX + name: name for name in (*GAUGES, *COUNTERS)}


def samples(exposition: str, wanted: tuple[str, ...] = ()) -> Iterator[tuple[str, Mapping[str, str], float]]:
    """(name, labels, value) of every sample that is a number; none where the text is no exposition.

    wanted: beginnings of the names to look at, () for all. An engine shows hundreds of samples, most of them buckets
    of histograms, and is asked twice a second beside a measurement: what nobody reads is not parsed.
    """
    if wanted:
        exposition = "\n".join(line for line in exposition.splitlines() if line.startswith(wanted)) + "\n"
    try:
        for family in text_string_to_metric_families(exposition):
            for sample in family.samples:
                if not math.isnan(sample.value):
                    yield sample.name, sample.labels, sample.value
    except ValueError:
        return


def summed(exposition: str, names: Mapping[str, str]) -> dict[str, float]:
    """Values of the samples in `names` (theirs → ours), added up over labels (such as several replicas)."""
    values: dict[str, float] = {}
    for name, _, value in samples(exposition, tuple(names)):
        if name in names:
            values[names[name]] = values.get(names[name], 0.0) + value
    return values


def own_metrics(exposition: str) -> dict[str, float]:
    """Metrics of a server of `backends.serving`."""
    return summed(exposition, _OWN)
