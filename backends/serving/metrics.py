"""What the server tells about itself at /metrics, in Prometheus' text format."""

from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from harness.core.metric_names import COUNTERS, GAUGES, PREFIX


class _Values(Collector):
    def __init__(self, values: Mapping[str, float]) -> None:
        self._values = values

    def collect(self) -> Iterable[Metric]:
        for name, words in GAUGES.items():
            if name in self._values:
                yield GaugeMetricFamily(PREFIX + name, words, value=self._values[name])
        for name, words in COUNTERS.items():
            if name in self._values:
                yield CounterMetricFamily(PREFIX + name, words, value=self._values[name])


def expose(values: Mapping[str, float]) -> tuple[bytes, str]:
    """(body, content type) of an exposition of `values`, which go by their common names."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Values(values))
    return generate_latest(registry), CONTENT_TYPE_LATEST
