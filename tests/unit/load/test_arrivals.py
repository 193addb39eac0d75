"""Arrival processes as tables: what is due when, with no clock and no network."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.load.arrivals import NAMES, arrival_process


@pytest.mark.parametrize(
    ("started", "finished", "wait"),
    [(0, 0, 0.0), (3, 0, 0.0), (4, 0, None), (4, 1, 0.0), (5, 1, None), (100, 97, 0.0), (100, 96, None)],
)
@pytest.mark.parametrize("elapsed_s", [0.0, 1e6])
def test_closed(started: int, finished: int, wait: float | None, elapsed_s: float) -> None:
    process = arrival_process("closed", concurrency=4, ramp_s=0.0)
    assert process.wait(elapsed_s, started, finished) == wait
    assert not process.open_loop


@pytest.mark.parametrize(
    ("rate", "elapsed_s", "started", "wait"),
    [
        (10.0, 0.0, 0, 0.0),
        (10.0, 0.0, 1, 0.1),
        (10.0, 0.05, 1, 0.05),
        (10.0, 0.3, 1, -0.2),  # it was due 0.2 s ago
        (0.5, 0.0, 3, 6.0),
        (3.0, 0.0, 3_000_000, 1_000_000.0),  # no rounding error accumulates
    ],
)
@pytest.mark.parametrize("finished", [0, 10**6])
def test_constant(rate: float, elapsed_s: float, started: int, wait: float, finished: int) -> None:
    process = arrival_process("constant", rate=rate)
    assert process.wait(elapsed_s, started, finished) == pytest.approx(wait, abs=1e-12)
    assert process.open_loop


def gaps(rate: float, seed: int, count: int) -> list[float]:
    process = arrival_process("poisson", rate=rate, seed=seed)
    instants = [process.wait(0.0, number, 0) or 0.0 for number in range(count)]
    return [after - before for before, after in zip([0.0, *instants], instants, strict=False)]


def test_poisson_gaps_are_exponential() -> None:
    drawn = sorted(gaps(5.0, 1, 20_000))
    mean = sum(drawn) / len(drawn)
    assert mean == pytest.approx(0.2, rel=0.03)
    distance = max(  # Kolmogorov-Smirnov against the closed form; 1.63 / sqrt(n) is its 1 % point
        abs((number + 0.5) / len(drawn) - (1 - math.exp(-5.0 * gap))) for number, gap in enumerate(drawn)
    )
    assert distance < 1.63 / math.sqrt(len(drawn))


@given(seed=st.integers(0, 2**32), order=st.permutations(range(12)), elapsed_s=st.floats(0, 100))
def test_poisson_depends_on_the_seed_alone(seed: int, order: list[int], elapsed_s: float) -> None:
    """Asked in any order, at any time, it gives the same instants."""
    forwards = arrival_process("poisson", rate=2.0, seed=seed)
    shuffled = arrival_process("poisson", rate=2.0, seed=seed)
    found = {number: (shuffled.wait(elapsed_s, number, 3) or 0.0) + elapsed_s for number in order}
    for number in range(12):
        assert found[number] == pytest.approx(forwards.wait(0.0, number, 0), abs=1e-9)
    assert [found[number] for number in range(12)] == sorted(found.values())


def test_seeds_differ() -> None:
    assert gaps(1.0, 1, 5) != gaps(1.0, 2, 5)


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(ValueError, match=NAMES[0]):
        arrival_process("bursty", rate=1.0)
