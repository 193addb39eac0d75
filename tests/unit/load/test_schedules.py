"""Arrivals of changing rate, bursts and replays against closed forms and distributions."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from harness.load.arrivals import ArrivalProcess, arrival_process


def instants(process: ArrivalProcess, count: int) -> list[float]:
    return [process.wait(0.0, number, 0) or 0.0 for number in range(count)]


@pytest.mark.parametrize(
    ("elapsed_s", "started", "finished", "wait"),
    [
        (0.0, 0, 0, 0.0),
        (0.0, 1, 0, 2.5),  # four slots over ten seconds: 0, 2.5, 5, 7.5
        (2.5, 1, 0, 0.0),
        (6.0, 2, 0, 0.0),
        (6.0, 3, 0, 1.5),
        (6.0, 9, 6, 1.5),  # as many in flight, whatever came before
        (6.0, 9, 7, 0.0),  # an open slot became free
        (20.0, 3, 0, 0.0),
        (20.0, 4, 0, None),
        (1.0, 4, 0, None),
    ],
)
def test_slots_of_a_closed_loop_open_one_after_another(
    elapsed_s: float, started: int, finished: int, wait: float | None
) -> None:
    process = arrival_process("closed", concurrency=4, ramp_s=10.0)
    assert process.wait(elapsed_s, started, finished) == wait


@pytest.mark.parametrize("cv", [0.25, 1.0, 2.0])
def test_gamma_gaps_have_their_distribution(cv: float) -> None:
    drawn = instants(arrival_process("gamma", rate=5.0, cv=cv, seed=3), 5_000)
    gaps = [after - before for before, after in zip([0.0, *drawn], drawn, strict=False)]
    expected = stats.gamma(a=1 / cv**2, scale=cv**2 / 5.0)
    assert expected.mean() == pytest.approx(0.2)
    assert expected.std() / expected.mean() == pytest.approx(cv)
    assert stats.kstest(gaps, expected.cdf).pvalue > 0.01


RATES = st.just(0.0) | st.floats(0.01, 50)
RAMPS = st.tuples(RATES, RATES, st.floats(0.5, 100)).filter(lambda ramp: ramp[0] + ramp[1] > 0)


@given(ramp=RAMPS, number=st.integers(0, 500))
def test_an_even_ramp_inverts_the_integrated_rate(ramp: tuple[float, float, float], number: int) -> None:
    rate, rate_end, ramp_s = ramp
    instant = arrival_process("ramp", rate=rate, rate_end=rate_end, ramp_s=ramp_s, seed=None).wait(
        0.0, number, 0
    )
    assert instant is not None

    def offered(t: float) -> float:
        return rate + (rate_end - rate) * min(t / ramp_s, 1.0)

    if instant == math.inf:
        assert rate_end == 0 and number >= rate * ramp_s / 2 - 1e-6
        return
    expected, _ = integrate.quad(offered, 0, min(instant, ramp_s))
    expected += max(0.0, instant - ramp_s) * rate_end
    assert expected == pytest.approx(number, abs=1e-6 * max(1, number))


@pytest.mark.parametrize(
    ("stages", "expected"),
    [
        ([(2, 2), (10, 0.5)], [0, 0.5, 1, 1.5, 2, 2.1, 2.2, 2.3, 2.4, 2.5, 2.6]),
        ([(1, 2), (0, 3), (2, 1)], [0, 1, 5, 5.5, 6, 6.5]),
        ([(0, 4), (1, 2)], [4, 5, 6]),
        ([(1, 2), (0, 1)], [0, 1, math.inf]),
    ],
)
def test_even_steps(stages: list[tuple[float, float]], expected: list[float]) -> None:
    process = arrival_process("steps", stages=stages, seed=None)
    assert instants(process, len(expected)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("name", "settings", "within_s", "expected"),
    [
        ("ramp", {"rate": 10.0, "rate_end": 50.0, "ramp_s": 40.0}, 40.0, 1200.0),
        ("steps", {"stages": [(5.0, 40.0), (20.0, 30.0)]}, 70.0, 800.0),
    ],
)
def test_random_arrivals_of_changing_rate_are_poisson(
    name: str, settings: dict[str, Any], within_s: float, expected: float
) -> None:
    """Their count has the closed form's mean and variance, and each half its share of it."""
    first_half = {"ramp": 400.0, "steps": 175.0}[name]
    counts, firsts = [], []
    for seed in range(30):
        drawn = instants(arrival_process(name, **settings, seed=seed), int(expected * 1.4))
        assert drawn == sorted(drawn)
        counts.append(sum(instant < within_s for instant in drawn))
        firsts.append(sum(instant < within_s / 2 for instant in drawn))
    for found, mean in ((counts, expected), (firsts, first_half)):
        assert stats.poisson(mean * len(found)).sf(sum(found)) > 0.001
        assert stats.poisson(mean * len(found)).cdf(sum(found)) > 0.001
    dispersion = sum((count - expected) ** 2 for count in counts) / expected
    assert 0.001 < stats.chi2(len(counts)).sf(dispersion) < 0.999


@given(elapsed_s=st.floats(0, 100))
def test_a_trace_is_replayed_as_it_is(elapsed_s: float) -> None:
    process = arrival_process("trace", instants=[0.0, 0.0, 1.25, 9.0])
    assert process.open_loop
    for number, instant in enumerate([0.0, 0.0, 1.25, 9.0]):
        assert process.wait(elapsed_s, number, 0) == pytest.approx(instant - elapsed_s)
