"""The figures by which two sides are compared: which decide, which only inform, and what change of each matters."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from harness.compare.groups import METRICS
from harness.core.errors import UsageError
from harness.metrics.latency import latencies
from harness.metrics.quality_figures import QUALITY_FIGURES
from harness.metrics.window import Window
from harness.records.paths import pick
from harness.records.reader import Run

MOST_GATING = 4  # the error of a comparison is shared by those that decide: more of them could show less
_REQUEST_MEDIANS = {"ttft_ms.p50": "ttft_ms", "tpot_ms.p50": "tpot_ms"}


@dataclass(frozen=True, slots=True)
class Measure:
    """A figure of a run. path: its key in the summary, which is also its name on a command line.

    better, worse: words for a candidate that differs. gating: whether it decides. least_effect: the smallest
    relative change that matters. unit: "ms", "bytes", "share" or a word to print.
    """

    path: str
    title: str
    unit: str
    higher_is_better: bool
    better: str
    worse: str
    least_effect: float
    gating: bool

    def samples(self, run: Run) -> list[float]:
        """What this run has of it: each request's own value where the figure is a median of those, else the figure.

        [] where the run has none.
        """
        value = pick(run.summary, self.path)
        if value is None:
            return []
        column = _REQUEST_MEDIANS.get(self.path)
        if column is None or not run.window:
            return [float(value)]
        scheduled = Window.from_record(run.window).requests(run.requests)
        values = latencies(scheduled)[column].dropna()
        return [float(one) for one in values] or [float(value)]


def _measure(
    path: str, title: str, unit: str, words: tuple[str, str], higher: bool = False, least: float = 0.03
) -> Measure:
    gating = any(metric.path == path for metric in METRICS)
    return Measure(path, title, unit, higher, *words, least, gating)


_SPEED, _SIZE, _QUALITY = ("faster", "slower"), ("smaller", "larger"), ("better", "worse")
MEASURES = (
    _measure("output_tokens_per_s", "Output throughput", "tokens/s", _SPEED, higher=True),
    _measure("ttft_ms.p50", "TTFT p50", "ms", _SPEED),
    _measure("tpot_ms.p50", "TPOT p50", "ms", _SPEED),
    _measure("memory.kv_per_request_bytes", "KV per request", "bytes", _SIZE),
    # Late percentiles rest on few requests, so that a smaller change of theirs says nothing.
    _measure("ttft_ms.p95", "TTFT p95", "ms", _SPEED, least=0.1),
    _measure("tpot_ms.p95", "TPOT p95", "ms", _SPEED, least=0.1),
    _measure("itl_ms.p99", "ITL p99", "ms", _SPEED, least=0.1),
    _measure("e2e_ms.p50", "E2E p50", "ms", _SPEED),
    _measure("requests_per_s", "Requests", "1/s", _SPEED, higher=True),
    _measure("slo_attainment", "Within the SLO", "share", _QUALITY, higher=True),
    _measure("memory.peak_process_bytes", "Peak memory", "bytes", _SIZE),
    _measure("memory.peak_gpu_bytes", "Peak GPU memory", "bytes", _SIZE),
    _measure("energy.joules_per_output_token", "Energy per token", "J", ("less", "more")),
    _measure("cost.per_million_output_tokens", "Cost per million tokens", "", ("cheaper", "dearer")),
    # Judged over the items that both sides were asked, not over runs, which all answer them alike. What matters is
    # relative of perplexity, and in points of right answers.
    *(
        _measure(
            figure.path,
            figure.label[0].upper() + figure.label[1:],
            "" if figure.chance is None else "share",
            _QUALITY,
            higher=figure.higher_is_better,
            least=0.005 if figure.chance is None else 0.02,
        )
        for figure in QUALITY_FIGURES
    ),
)


def chosen(gating: Sequence[str] | None, least_effects: Mapping[str, float]) -> tuple[Measure, ...]:
    """The measures, with other ones that decide and other changes that matter. `least_effects`: by path; "" is all.

    Raises UsageError for a path that is no measure, for more than four that decide, and for an effect outside 0…1.
    """
    paths = [measure.path for measure in MEASURES]
    for path in (*(gating or ()), *filter(None, least_effects)):
        if path not in paths:
            raise UsageError(f"{path} is no figure that is compared. There are: {', '.join(paths)}.")
    if gating is not None and not 1 <= len(set(gating)) <= MOST_GATING:
        raise UsageError(
            f"gating=[…] names {len(set(gating))} figures: 1 to {MOST_GATING} can decide. With more of them each "
            "would be allowed so few false alarms that it could show almost nothing."
        )
    for path, effect in least_effects.items():
        if not 0 < effect < 1:
            name = f"least_effect.{path}" if path else "least_effect"
            raise UsageError(f"{name}={effect:g} is a relative change between 0 and 1: 0.03 is 3 %.")
    everywhere = least_effects.get("")
    found = []
    for measure in MEASURES:
        effect = least_effects.get(measure.path, everywhere or measure.least_effect)
        decides = measure.gating if gating is None else measure.path in gating
        found.append(replace(measure, least_effect=effect, gating=decides))
    return tuple(found)
