"""Recorded runs beside the roofline: how far it was off, and what that makes of the plan."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from harness.core.errors import UsageError
from harness.core.geometry import BYTES_PER_VALUE
from harness.metrics.latency import measured, succeeded
from harness.plan.precision import Precision
from harness.plan.roofline import Speeds, speeds
from harness.plan.setting import Setting
from harness.records.paths import pick
from harness.records.reader import Run

_MS = 1000
# Figures of a run, where they stand in its summary, and what one of them is multiplied by to be in Speeds' unit.
_PATHS = {
    "ttft_s": ("ttft_from_send_ms.p50", 1 / _MS),
    "tpot_s": ("tpot_ms.p50", 1 / _MS),
    "tokens_per_s": ("output_tokens_per_s", 1.0),
    "kv_bytes": ("memory.kv_per_request_bytes", 1.0),
}
TITLES = {"ttft_s": "TTFT", "tpot_s": "TPOT", "tokens_per_s": "tokens/s", "kv_bytes": "KV per request"}


@dataclass(frozen=True)
class Comparison:
    """One run. figures: name to (calculated, measured), None where either is not known."""

    run: str
    users: int
    prompt_tokens: int
    output_tokens: int
    figures: dict[str, tuple[float | None, float | None]]

    def ratio(self, name: str) -> float | None:
        """Measured / calculated."""
        calculated, found = self.figures[name]
        return found / calculated if calculated and found is not None else None

    @property
    def beaten(self) -> bool:
        """Whether the run gave more tokens per second than the bound allows."""
        rate = self.ratio("tokens_per_s")
        return rate is not None and rate > 1


def compare(runs: Sequence[Run], setting: Setting) -> list[Comparison]:
    """Each run beside the roofline of its own lengths, concurrency and precisions, on the plan's hardware.

    TTFT is compared from sending, at the median, so a queue inside the engine is part of what was measured; a run
    at concurrency 1 has none. Raises UsageError where a run failed, its workload is not that of the others, its
    model is not the plan's, or it says too little.
    """
    plans = {str(pick(run.fingerprint, "plan_sha256")) for run in runs}
    if len(plans) > 1:
        raise UsageError(
            f"runs: these {len(runs)} runs were asked different things, so they cannot be taken together. "
            "Name runs of one workload and seed."
        )
    return [_one(run, setting) for run in runs]


def typical_ratio(comparisons: Sequence[Comparison], name: str) -> float | None:
    """The median over the runs that have one."""
    known = [ratio for one in comparisons if (ratio := one.ratio(name)) is not None]
    return float(np.median(known)) if known else None


def expected(bounds: Speeds, comparisons: Sequence[Comparison]) -> Speeds:
    """The plan's bounds times what the runs took of theirs; None where no run tells."""

    def times(value: float | None, name: str) -> float | None:
        ratio = typical_ratio(comparisons, name)
        return None if value is None or ratio is None else value * ratio

    return replace(
        bounds,
        ttft_s=times(bounds.ttft_s, "ttft_s"),
        step_s=None,
        tpot_s=times(bounds.tpot_s, "tpot_s"),
        tokens_per_s=times(bounds.tokens_per_s, "tokens_per_s"),
        requests_per_s=times(bounds.requests_per_s, "tokens_per_s"),
    )


def _one(run: Run, setting: Setting) -> Comparison:
    if run.status == "failed":
        raise UsageError(f"runs: {run.id} failed, so it measured nothing. Leave it out.")
    model = pick(run.config, "model.name")
    if model is not None and str(model) != setting.geometry.name:
        raise UsageError(
            f"runs: {run.id} served {model}, the plan is of {setting.geometry.name}. "
            f"Plan for that model: model={model}, or model=config with its own config.json."
        )
    requests = measured(run.requests)
    requests = requests[succeeded(requests)]
    if requests.empty:
        raise UsageError(f"runs: no measured request of {run.id} succeeded. Leave it out.")
    prompt = max(1, round(float(requests["prompt_tokens"].mean())))
    output = max(1, round(float(requests["output_tokens"].mean())))
    users = max(1, round(_concurrency(run)))
    own = replace(
        setting,
        weights=_precision(run, ("backend.weight_dtype", "backend.dtype"), setting.weights),
        kv=_precision(run, ("backend.kv_dtype",), setting.kv),
    )
    bounds = speeds(own, users, prompt, output)
    calculated = {
        "ttft_s": bounds.ttft_s,
        "tpot_s": bounds.tpot_s,
        "tokens_per_s": bounds.tokens_per_s,
        "kv_bytes": own.kv_bytes(prompt + output // 2),
    }
    figures = {}
    for name, (path, unit) in _PATHS.items():
        found = pick(run.summary, path)
        figures[name] = (calculated[name], None if found is None else found * unit)
    return Comparison(run.id, users, prompt, output, figures)


def _concurrency(run: Run) -> float:
    """What was asked for in a closed loop, elsewhere requests in flight on average (Little's law)."""
    target = pick(run.window, "concurrency")
    if target:
        return float(target)
    rate, latency = pick(run.summary, "requests_per_s"), pick(run.summary, "e2e_from_send_ms.mean")
    return rate * latency / _MS if rate and latency else 1.0


def _precision(run: Run, paths: Sequence[str], planned: Precision) -> Precision:
    """The run's own by the first of these keys that names one; the plan's where none does."""
    dtype = next((value for path in paths if (value := pick(run.config, path)) in BYTES_PER_VALUE), None)
    return planned if dtype in (None, planned.dtype) else Precision(str(dtype))
