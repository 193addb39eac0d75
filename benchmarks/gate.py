"""How often the gate is wrong, on nights whose truth is known.

    python benchmarks/gate.py            figures beside their targets (a few minutes)
    python benchmarks/gate.py --check    exits 1 where a target is missed
    python benchmarks/gate.py --nights 200

A night is simulated as the machine makes it: its level drifts from night to night (AR(1), standard deviation 10 %,
correlation 0.8) and within the night (AR(1) from run to run, 3 %, 0.8); each run has noise of 3 %, most of it common
to all figures of the run, and one run of 20 is far too slow. The second law, on which nothing was tuned, has Laplace
noise, Student's t with 4 degrees of freedom between nights, and exponential tails. Throughput, TTFT and TPOT share
the drift; KV per request depends on geometry and hardly moves.

A night has the two cells of experiment=nightly: each turn of a side measures one after the other, and the night
alarms where any figure of either does; the errors it may make are shared by all of them. A slow-down is simulated in
both cells, as a slower engine has it; how often it is found in one cell alone is told beside it.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from harness.compare.measures import MEASURES
from harness.gate.floor import beyond, floor_of
from harness.gate.judging import limits_of
from harness.gate.night import BASELINE, CANDIDATE, turns
from harness.gate.options import options_from
from harness.gate.paired import Limits, Series, leans, regressed

REPEATS = 5
CELLS = 2
GATING = [measure for measure in MEASURES if measure.gating]
FIGURES = [(cell, measure) for cell in range(CELLS) for measure in GATING]  # all that a night judges
NOISE, NIGHT_DRIFT, RUN_DRIFT, ALIKE = 0.03, 0.10, 0.03, 0.8
COMMON = 0.7  # correlation with the run's common part
TAILS = 0.05
HISTORY = 60  # nights that stored mode has seen


@dataclass(frozen=True)
class Law:
    """How noise is distributed: standard deviates of runs and of nights, and how far a slow run is off (log)."""

    name: str
    run: Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]
    night: Callable[[np.random.Generator, int], np.ndarray]
    tail: Callable[[np.random.Generator, int], np.ndarray]


LAWS = (
    Law(
        "normal",
        lambda draws, shape: draws.normal(size=shape),
        lambda draws, n: draws.normal(size=n),
        lambda draws, n: draws.uniform(0.05, 0.5, n),
    ),
    Law(
        "Laplace, t",
        lambda draws, shape: draws.laplace(scale=1 / np.sqrt(2), size=shape),
        lambda draws, n: draws.standard_t(4, n) / np.sqrt(2),
        lambda draws, n: draws.exponential(0.2, n),
    ),
)


def drift(steps: np.ndarray, deviation: float) -> np.ndarray:
    """AR(1) from standard deviates: stationary standard deviation `deviation`, correlation ALIKE."""
    level = np.empty(len(steps))
    now = steps[0] * deviation
    for place, step in enumerate(steps):
        now = now if place == 0 else ALIKE * now + step * deviation * np.sqrt(1 - ALIKE**2)
        level[place] = now
    return level


def costs(draws: np.random.Generator, law: Law, turns: int) -> np.ndarray:
    """Shape (turns, cells × figures): log of what each run took, the night's own level left out.

    A turn runs the cells one after the other, on a machine that drifts from run to run.
    """
    runs = turns * CELLS
    level = drift(law.run(draws, (runs,)), RUN_DRIFT)
    common, own = law.run(draws, (runs, 1)), law.run(draws, (runs, len(GATING)))
    values = level[:, None] + NOISE * (COMMON * common + np.sqrt(1 - COMMON**2) * own)
    slow = draws.random(runs) < TAILS
    values[slow] += law.tail(draws, int(slow.sum()))[:, None]
    for place, measure in enumerate(GATING):
        if measure.path.startswith("memory."):
            values[:, place] = 0.001 * law.run(draws, (runs,))
    return values.reshape(turns, CELLS * len(GATING))


def look(draws: np.random.Generator, law: Law, slower: Sequence[float]) -> list[Series]:
    """One look in turns; the candidate's times are longer by `slower` of each cell (0.1 for 10 %)."""
    order = list(turns(REPEATS))
    values = costs(draws, law, len(order))
    found = []
    for place, (cell, measure) in enumerate(FIGURES):
        sides: dict[str, list[float]] = {}
        moves = not measure.path.startswith("memory.")
        for side, value in zip(order, values[:, place], strict=True):
            changed = np.log1p(slower[cell]) if side == CANDIDATE and moves else 0.0
            cost = float(np.exp(value + changed))
            sides.setdefault(side, []).append(1 / cost if measure.higher_is_better else cost)
        both = (tuple(sides[side]) for side in (BASELINE, CANDIDATE))
        found.append(Series(*both, measure.higher_is_better))
    return found


def paired_alarm(draws: np.random.Generator, law: Law, slower: Sequence[float], limits: Limits) -> bool:
    """Whether a paired night fails: the gate's own two looks."""
    first = look(draws, law, slower)
    if not any(leans(series, limits) for series in first):
        return False
    second = look(draws, law, slower)
    return any(regressed(looks, limits) for looks in zip(first, second, strict=True))


def stored_night(
    draws: np.random.Generator, law: Law, worse: float, limits: Limits
) -> tuple[list[bool], list[float | None]]:
    """For each figure: whether tonight alarms after HISTORY unchanged nights, and the floor that it states.

    worse: tonight's change as a multiple of each figure's own floor, 0 for none.
    """
    nights = drift(law.night(draws, HISTORY + 1), NIGHT_DRIFT)
    medians = np.array([np.median(costs(draws, law, REPEATS), axis=0) for _ in range(HISTORY + 1)])
    again = np.median(costs(draws, law, REPEATS), axis=0)
    alarms, floors = [], []
    for place, (_, measure) in enumerate(FIGURES):
        level = 0.0 if measure.path.startswith("memory.") else nights
        series = np.exp(medians[:, place] + level)
        second = float(np.exp(again[place] + (level if isinstance(level, float) else level[-1])))
        floor = floor_of(list(series[:-1]), limits.alpha, limits.least_effect)
        if floor is None:
            alarms.append(False)
            floors.append(None)
            continue
        change = (1 + floor.worsening) ** worse
        looks = (float(series[-1]) * change, second * change)
        alarms.append(all(beyond(value, floor, False) for value in looks))
        floors.append(floor.worsening)
    return alarms, floors


def main() -> int:
    """Print the figures; 1 where --check is given and a target is missed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--nights", type=int, default=1000)
    arguments = parser.parse_args()
    options, _ = options_from([])
    limits = limits_of(options, GATING, CELLS)
    missed = 0

    def row(what: str, found: float, sign: str, target: float) -> None:
        nonlocal missed
        met = found <= target if sign == "≤" else found >= target
        missed += not met
        print(
            f"{what:<64} {100 * found:6.2f} %  {sign} {100 * target:g} %  {'met' if met else 'MISSED'}",
            flush=True,
        )

    def within(nights: int, draws: np.random.Generator, law: Law, slower: Sequence[float]) -> float:
        each = np.mean([paired_alarm(draws, law, slower, limits) for _ in range(arguments.nights)])
        return 1 - (1 - float(each)) ** nights

    for law in LAWS:
        draws = np.random.default_rng(1)
        print(f"noise: {law.name}; {arguments.nights} nights each", flush=True)
        for slower, nights, sign, target in ((0.0, 1, "≤", 0.01), (0.10, 2, "≥", 0.95), (0.05, 5, "≥", 0.80)):
            found = f"{slower:.0%} slower: found within {nights} nights" if slower else "unchanged"
            row(f"paired, {found}", within(nights, draws, law, (slower,) * CELLS), sign, target)
            if slower:
                alone = (slower,) + (0.0,) * (CELLS - 1)
                seldom = within(nights, draws, law, alone)
                print(f"  where one cell of {CELLS} alone is slower: {100 * seldom:.2f} %", flush=True)
        same = [stored_night(draws, law, 0, limits) for _ in range(arguments.nights // 4 * 4)]
        row(f"stored, unchanged after {HISTORY} nights", float(np.mean([any(a) for a, _ in same])), "≤", 0.01)
        known = [
            floor
            for _, floors in same
            for floor, (_, measure) in zip(floors, FIGURES, strict=True)
            if floor is not None and not measure.path.startswith("memory.")
        ]
        print(f"  floor stated: median {np.median(known):.0%}, 10th percentile {np.quantile(known, 0.1):.0%}")
        few = [stored_night(draws, law, 2, limits) for _ in range(arguments.nights // 4)]
        hits = [
            alarm
            for alarms, floors in few
            for alarm, floor, (_, measure) in zip(alarms, floors, FIGURES, strict=True)
            if floor is not None and not measure.path.startswith("memory.")
        ]
        row("stored, twice the stated floor worse: found", float(np.mean(hits)), "≥", 0.95)
    return int(arguments.check and missed > 0)


if __name__ == "__main__":
    sys.exit(main())
