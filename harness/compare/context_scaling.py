"""How memory, first token and throughput grow with the context, and what batching gains, over recorded runs.

A study is found among any runs that differ in nothing but the length of the prompt, the concurrency, how many
requests the engine computes at once, and how many were sent: `experiment=context_scaling` makes such runs.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from harness.core.metric_names import KV_USED_BYTES
from harness.metrics.kv_per_token import held_tokens
from harness.metrics.scaling import (
    Estimate,
    LinearQuadratic,
    PowerLaw,
    line,
    linear_and_quadratic,
    power_law,
)
from harness.metrics.window import Window
from harness.records.paths import pick
from harness.records.reader import Run
from harness.records.setting_keys import MEASURES_NOTHING, PRICE, SEEDS
from harness.report.values import flatten

FEWEST_LENGTHS = 3
_VARIED = (
    *("workload.prompt_tokens", "workload.requests", "load.requests", "load.concurrency", "load.warmup"),
    *("backend.max_running", *MEASURES_NOTHING, *SEEDS, *PRICE),
)


@dataclass(frozen=True, slots=True)
class AtLength:
    """One run of one request after another. tokens: of the prompt. held, room, kv_bytes: tokens a request held, what
    its KV blocks have room for and what they took, means over the samples in which it generated; None where there was
    no such sample."""

    run: Run
    tokens: int
    held: float | None
    room: float | None
    kv_bytes: float | None
    ttft_ms: float
    tokens_per_s: float
    joules_per_token: float | None


@dataclass(frozen=True, slots=True)
class AtConcurrency:
    """Medians over the runs at one concurrency."""

    concurrency: int
    tokens_per_s: float
    ttft_ms: float


@dataclass(frozen=True, slots=True)
class Growth:
    """What the runs at several lengths say. Each fit is None where they do not tell."""

    points: tuple[AtLength, ...]
    memory: PowerLaw | None  # of KV bytes with tokens held
    bytes_per_token: Estimate | None
    ttft: PowerLaw | None  # of ms with tokens of the prompt
    prefill: LinearQuadratic | None
    rate: PowerLaw | None


@dataclass(frozen=True, slots=True)
class Batching:
    """Prompts of `tokens` tokens: as many computed at once as there are, and one after another."""

    tokens: int
    together: tuple[AtConcurrency, ...]
    in_turn: tuple[AtConcurrency, ...]

    @property
    def gain(self) -> tuple[int, float] | None:
        """The highest concurrency that both have, and the ratio of their throughputs there."""
        rates = {point.concurrency: point.tokens_per_s for point in self.in_turn if point.tokens_per_s}
        both = [point for point in self.together if point.concurrency in rates and point.concurrency > 1]
        if not both:
            return None
        return both[-1].concurrency, both[-1].tokens_per_s / rates[both[-1].concurrency]


@dataclass(frozen=True, slots=True)
class Study:
    """Runs of one engine and setting. growth, batching: None where there are too few runs for it."""

    runs: tuple[Run, ...]
    growth: Growth | None
    batching: Batching | None


def studies(runs: Sequence[Run]) -> list[Study]:
    """Every study among these runs, in the order of their first ones."""
    grouped: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        if (
            run.status == "complete"
            and _length(run) is not None
            and pick(run.config, "load.name") == "closed"
        ):
            alike = {key: value for key, value in flatten(run.config).items() if key not in _VARIED}
            grouped[repr(sorted(alike.items(), key=lambda item: item[0]))].append(run)
    found = [Study(tuple(members), _growth(members), _batching(members)) for members in grouped.values()]
    return [study for study in found if study.growth or study.batching]


def _growth(runs: Sequence[Run]) -> Growth | None:
    points = [point for run in runs if _concurrency(run) == 1 and (point := _at_length(run)) is not None]
    points.sort(key=lambda point: point.tokens)
    if len({point.tokens for point in points}) < FEWEST_LENGTHS:
        return None
    lengths, waits = [float(point.tokens) for point in points], [point.ttft_ms for point in points]
    known = [
        (p.held, p.room, p.kv_bytes)
        for p in points
        if p.held is not None and p.room is not None and p.kv_bytes is not None
    ]
    held, room, sizes = ([one[part] for one in known] for part in range(3))
    straight = line(room, sizes) if known else None
    return Growth(
        points=tuple(points),
        memory=power_law(held, sizes),
        bytes_per_token=None if straight is None else straight[0],
        ttft=power_law(lengths, waits),
        prefill=linear_and_quadratic(lengths, waits),
        rate=power_law(lengths, [point.tokens_per_s for point in points]),
    )


def _at_length(run: Run) -> AtLength | None:
    tokens, wait = _length(run), pick(run.summary, "ttft_from_send_ms.p50")
    rate = pick(run.summary, "output_tokens_per_s")
    if tokens is None or not wait or not rate:
        return None
    samples = held_tokens(run.requests, run.events, run.telemetry, Window.from_record(run.window))
    alone = samples[samples["requests"] == 1]
    return AtLength(
        run=run,
        tokens=tokens,
        held=float(alone["tokens"].mean()) if len(alone) else None,
        room=float(alone["room"].mean()) if len(alone) else None,
        kv_bytes=float(alone[KV_USED_BYTES].mean()) if len(alone) else None,
        ttft_ms=float(wait),
        tokens_per_s=float(rate),
        joules_per_token=pick(run.summary, "energy.joules_per_output_token"),
    )


def _batching(runs: Sequence[Run]) -> Batching | None:
    crowded = [run for run in runs if _concurrency(run) > 1]
    if not crowded:
        return None
    lengths = [_length(run) for run in crowded]
    tokens = max(set(lengths), key=lengths.count)
    same = [run for run in runs if _length(run) == tokens]
    together = [run for run in same if (_running(run) or _concurrency(run)) >= _concurrency(run)]
    in_turn = [run for run in same if _running(run) == 1 or _concurrency(run) == 1]
    study = Batching(tokens or 0, _by_concurrency(together), _by_concurrency(in_turn))
    return study if study.gain is not None else None


def _by_concurrency(runs: Sequence[Run]) -> tuple[AtConcurrency, ...]:
    grouped: dict[int, list[Run]] = defaultdict(list)
    for run in runs:
        if pick(run.summary, "output_tokens_per_s") and pick(run.summary, "ttft_ms.p50"):
            grouped[_concurrency(run)].append(run)
    return tuple(
        AtConcurrency(
            concurrency,
            median(run.summary["output_tokens_per_s"] for run in members),
            median(run.summary["ttft_ms"]["p50"] for run in members),
        )
        for concurrency, members in sorted(grouped.items())
    )


def _length(run: Run) -> int | None:
    """Of its prompts, where all have the same."""
    tokens = str(pick(run.config, "workload.prompt_tokens"))
    return int(tokens) if tokens.isdecimal() else None


def _concurrency(run: Run) -> int:
    return int(pick(run.config, "load.concurrency") or 0)


def _running(run: Run) -> int | None:
    running = pick(run.config, "backend.max_running")
    return None if running is None else int(running)
