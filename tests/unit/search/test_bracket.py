"""The decisions of a search on servers whose saturation has a closed form."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.search.bracket import Found, Rules, Tried, found_by, next_value

RULES = Rules(first=1.0, most=None, tolerance=0.1, probes=30, whole=False)


def search(rules: Rules, meets: Callable[[float, int], bool]) -> tuple[list[Tried], Found]:
    """Probe until the search is over; `meets(value, how many probes before)` is the server."""
    tried: list[Tried] = []
    while (value := next_value(tried, rules)) is not None:
        assert len(tried) < rules.probes
        tried.append(Tried(value, meets(value, len(tried))))
    return tried, found_by(tried, rules)


@given(
    service=st.floats(0.5, 500),
    patience=st.floats(1.05, 50),
    first=st.floats(0.1, 100),
    tolerance=st.floats(0.02, 0.5),
)
def test_the_highest_rate_of_a_queue_is_found(
    service: float, patience: float, first: float, tolerance: float
) -> None:
    """M/M/1: mean time in system is 1 / (μ − λ), so a limit of k / μ is met up to λ = μ (1 − 1 / k)."""
    limit_s = patience / service
    highest = service * (1 - 1 / patience)
    rules = Rules(first, None, tolerance, 60, False)

    def meets(rate: float, _: int) -> bool:
        return rate < service and 1 / (service - rate) <= limit_s

    tried, found = search(rules, meets)
    assert found.value is not None and found.missed is not None
    assert found.value <= highest * (1 + 1e-9) and found.missed >= highest * (1 - 1e-9)
    assert found.missed <= found.value * (1 + tolerance) * (1 + 1e-9)
    assert found.narrow and found.repeated
    assert [probe.value for probe in tried].count(found.value) == 2
    assert tried[-1].value == found.value


@given(slots=st.integers(1, 300), first=st.integers(1, 64))
def test_the_highest_concurrency_is_found_exactly(slots: int, first: int) -> None:
    rules = Rules(float(first), None, 0.001, 60, True)
    tried, found = search(rules, lambda value, _: value <= slots)
    assert (found.value, found.missed) == (slots, slots + 1)
    assert found.repeated and found.narrow
    assert all(probe.value == int(probe.value) >= 1 for probe in tried)


def test_the_order_of_probes() -> None:
    tried, _ = search(RULES, lambda value, _: value <= 5)
    assert [probe.value for probe in tried] == [1, 2, 4, 8, 6, 5, 5.5, 5]
    tried, _ = search(Rules(16, None, 0.25, 30, False), lambda value, _: value <= 5)
    assert [probe.value for probe in tried] == [16, 8, 4, 6, 5, 5]


def test_a_repeat_that_misses_sends_the_search_down() -> None:
    """A server that slows down: what met once misses later."""
    tried, found = search(RULES, lambda value, before: value <= (5 if before < 7 else 4.2))
    assert [probe.value for probe in tried][:8] == [1, 2, 4, 8, 6, 5, 5.5, 5]
    assert found.value is not None and 4 <= found.value <= 4.2
    assert found.repeated and found.missed is not None and found.missed <= 5


def test_a_bound_from_above_is_kept_and_repeated() -> None:
    tried, found = search(Rules(3, 10, 0.1, 30, False), lambda value, _: True)
    assert [probe.value for probe in tried] == [3, 6, 10, 10]
    assert found == Found(10, None, repeated=True, narrow=True)


@pytest.mark.parametrize("whole", [True, False])
def test_nothing_meets(whole: bool) -> None:
    tried, found = search(Rules(8, None, 0.1, 6, whole), lambda value, _: False)
    expected = [8, 4, 2, 1] if whole else [8, 4, 2, 1, 0.5, 0.25]
    assert [probe.value for probe in tried] == expected
    assert found == Found(None, expected[-1], repeated=False, narrow=whole)


@pytest.mark.parametrize(
    ("first", "expected"), [(1.0, [1, 0.5, 0.25, 0.125, 0.0625]), (0.2, [0.2, 0.1, 0.05]), (0.01, [0.01])]
)
def test_nothing_is_tried_below_the_least(first: float, expected: list[float]) -> None:
    """One session in 20 s: below, a probe would only wait for its first."""
    tried, found = search(Rules(first, None, 0.1, 30, False, least=0.05), lambda value, _: False)
    assert [probe.value for probe in tried] == expected
    assert found == Found(None, expected[-1], repeated=False, narrow=True)


def test_the_least_does_not_end_a_bisection() -> None:
    _, found = search(Rules(0.06, None, 0.01, 30, False, least=0.05), lambda value, _: value <= 0.07)
    assert found.value == pytest.approx(0.07, rel=0.011) and found.repeated


@given(highest=st.floats(0.01, 1e6), probes=st.integers(2, 12))
def test_it_is_bounded_and_keeps_the_last_probe_for_the_repeat(highest: float, probes: int) -> None:
    rules = Rules(1.0, None, 0.01, probes, False)
    tried, found = search(rules, lambda value, _: value <= highest)
    assert len(tried) <= probes
    if found.value is not None and len(tried) == probes and tried[-2].met:
        assert found.repeated
    if any(probe.met for probe in tried[:-1]):
        assert found.repeated


@given(answers=st.lists(st.booleans(), min_size=30, max_size=30))
def test_whatever_a_server_says_the_answer_is_below_every_miss(answers: list[bool]) -> None:
    tried, found = search(RULES, lambda _, before: answers[before])
    missed = [probe.value for probe in tried if not probe.met]
    if found.value is not None:
        assert Tried(found.value, True) in tried
        assert all(found.value < value for value in missed)
