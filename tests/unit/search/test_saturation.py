"""Over-saturation on queues that are simulated event by event, and on fluid ones with a closed form."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.client import Progress
from harness.search.saturation import Saturation, expected_in_flight


def progress(elapsed_s: float, in_flight: int, waiting: int = 0) -> Progress:
    return Progress(
        state="running",
        elapsed_s=elapsed_s,
        total=10**6,
        sent=in_flight + 5,
        finished=5,
        errors=0,
        in_flight=in_flight,
        waiting=waiting,
        chunks=0,
    )


def in_flight_of_a_queue(rate: float, service_s: float, servers: int, seconds: int, seed: int) -> list[int]:
    """M/M/c, first come first served: requests in the system, ten times a second."""
    source = random.Random(seed)
    free = [0.0] * servers
    spans, arrival = [], 0.0
    while arrival < seconds:
        arrival += source.expovariate(rate)
        server = min(range(servers), key=free.__getitem__)
        free[server] = max(arrival, free[server]) + source.expovariate(1 / service_s)
        spans.append((arrival, free[server]))
    return [sum(start <= tick / 10 < end for start, end in spans) for tick in range(seconds * 10)]


def ended_after(saturation: Saturation, counts: list[int]) -> float | None:
    return next(
        (at / 10 for at, count in enumerate(counts) if saturation.look(progress(at / 10, count))), None
    )


@given(rate=st.floats(0.1, 100), e2e_ms=st.floats(1, 60_000), factor=st.floats(0.1, 10))
def test_littles_law(rate: float, e2e_ms: float, factor: float) -> None:
    assert expected_in_flight(rate, e2e_ms, 4.0 * factor, 4.0) == pytest.approx(rate * factor * e2e_ms / 1000)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(("rate", "servers"), [(10, 30), (18, 40), (2, 8)])
def test_a_server_that_keeps_up_is_left_alone(rate: float, servers: int, seed: int) -> None:
    """Up to 90 % busy, from empty to full; a request takes 2 s alone."""
    counts = in_flight_of_a_queue(rate, 2.0, servers, 60, seed)
    assert ended_after(Saturation(256, expected=rate * 2.0), counts) is None


@pytest.mark.parametrize("seed", range(4))
def test_a_server_that_falls_behind_is_noticed(seed: int) -> None:
    """Capacity 10 a second, offered 30: in flight grows by 20 a second towards 4 × 60."""
    counts = in_flight_of_a_queue(30, 2.0, 20, 60, seed)
    saturation = Saturation(10**6, expected=60.0)
    assert ended_after(saturation, counts) is not None
    assert "60 are expected" in (saturation.reason or "")


def test_too_many_in_flight_is_enough_where_nothing_is_known() -> None:
    saturation = Saturation(64)
    assert not saturation.look(progress(1.0, 64))
    assert saturation.look(progress(1.1, 65))
    assert "load.most_in_flight=64" in (saturation.reason or "")
    assert saturation.look(progress(1.2, 3))  # it stays so


def test_requests_that_a_bound_holds_back_count_as_well() -> None:
    saturation = Saturation(64)
    assert not saturation.look(progress(1.0, 8, waiting=56))
    assert saturation.look(progress(1.1, 8, waiting=57))
    assert "65 requests in flight (57 of them held back by load.concurrency)" in (saturation.reason or "")
    assert Saturation(10**6, expected=10).look(progress(1.0, 8, waiting=33))


def test_a_handful_is_never_running_away() -> None:
    assert not Saturation(256, expected=0.5).look(progress(1.0, 32))
    assert Saturation(256, expected=0.5).look(progress(1.0, 33))
