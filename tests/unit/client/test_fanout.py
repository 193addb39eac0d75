"""A load divided among workers is the whole load: sessions, instants, slots, permits, figures."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.client.fanout import check_open_files, split_setup
from harness.client.merging import cores_used, merged_result
from harness.client.permits import OwnPermits, SharedPermits
from harness.client.setup import Limits, Setup, Turn
from harness.client.share import Share
from harness.core.errors import UsageError
from harness.core.tls import Trust
from harness.load.arrivals import arrival_process

LIMITS = Limits(1, 1, 1, 1, 1, None, None)


def setup(sessions: int, connections: int = 8, cpus: tuple[int, ...] | None = None) -> Setup:
    return Setup(
        host="h",
        port=1,
        tls=False,
        trust=Trust(),
        head="",
        connections=connections,
        arrival={},
        sessions=tuple((Turn(number, 0, 1, 0, False),) for number in range(sessions)),
        limits=LIMITS,
        bodies="b",
        journal="/nowhere/j",
        result="/nowhere/r",
        counters_fd=-1,
        history=None,
        cpus=cpus,
    )


@given(sessions=st.integers(1, 40), workers=st.integers(1, 8), slots=st.none() | st.integers(1, 12))
def test_the_parts_are_the_whole(sessions: int, workers: int, slots: int | None) -> None:
    whole = setup(sessions)
    parts = split_setup(whole, workers, slots)
    assert len(parts) == min(workers, sessions, slots or workers)
    got = sorted(session[0].request for part in parts for session in part.sessions)
    assert got == list(range(sessions)) and all(part.sessions for part in parts)
    assert sum(part.connections for part in parts) == whole.connections
    for name in ("journal", "result"):
        assert len({getattr(part, name) for part in parts}) == len(parts)
    assert [(part.worker, part.workers) for part in parts] == [(n, len(parts)) for n in range(len(parts))]


def test_a_core_each_where_there_are_enough() -> None:
    assert [part.cpus for part in split_setup(setup(9, cpus=(4, 5, 6)), 3, None)] == [(4,), (5,), (6,)]
    assert [part.cpus for part in split_setup(setup(9, cpus=(4, 5)), 3, None)] == [(4, 5)] * 3
    assert [part.cpus for part in split_setup(setup(9), 2, None)] == [None] * 2


OPEN = st.sampled_from(
    [
        {"name": "constant", "rate": 7.0},
        {"name": "poisson", "rate": 50.0, "seed": 3},
        {"name": "gamma", "rate": 50.0, "cv": 3.0, "seed": 3},
        {"name": "trace", "instants": [0.5 * n for n in range(40)]},
    ]
)


@given(settings_=OPEN, workers=st.integers(1, 5), sessions=st.integers(1, 40))
def test_shares_of_an_open_loop_keep_every_instant(settings_: dict, workers: int, sessions: int) -> None:  # type: ignore[type-arg]
    alone = arrival_process(**settings_)
    expected = [alone.wait(0.0, number, 0) for number in range(sessions)]
    got: dict[int, float | None] = {}
    for worker in range(workers):
        share = Share(arrival_process(**settings_), worker, workers)
        assert share.open_loop
        for own, number in enumerate(range(worker, sessions, workers)):
            got[number] = share.wait(0.0, own, 0)
    assert [got[number] for number in range(sessions)] == expected


@given(slots=st.integers(1, 30), workers=st.integers(1, 8), ramp_s=st.sampled_from([0.0, 6.0]))
def test_slots_of_a_closed_loop_add_up_and_open_in_the_same_ramp(
    slots: int, workers: int, ramp_s: float
) -> None:
    whole = arrival_process(name="closed", concurrency=slots, ramp_s=ramp_s)
    opens: list[float] = []
    for worker in range(min(workers, slots)):
        share = Share(whole, worker, min(workers, slots))
        assert not share.open_loop
        in_flight = 0
        while (wait := share.wait(0.0, in_flight + 5, 5)) is not None:  # five are over already
            opens.append(wait)
            in_flight += 1
        assert share.wait(99.0, in_flight, 1) == 0.0  # one of them ended
    assert sorted(opens) == pytest.approx([ramp_s * slot / slots for slot in range(slots)])


@given(limit=st.integers(1, 5), steps=st.lists(st.tuples(st.booleans(), st.integers(0, 1)), max_size=40))
def test_shared_permits_are_one_bound(limit: int, steps: list[tuple[bool, int]]) -> None:
    """Two holders of one pipe against a counter."""
    ends = SharedPermits.create(limit)
    holders = [SharedPermits(ends), SharedPermits(ends)]
    held = [0, 0]
    try:
        for take, who in steps:
            if take:
                assert holders[who].take() is (sum(held) < limit)
                held[who] += sum(held) < limit
            elif held[who]:
                holders[who].give()
                held[who] -= 1
    finally:
        for end in ends:
            os.close(end)


@pytest.mark.parametrize("limit", [1, 2, 64, 4096, 4097])
def test_shared_permits_last_where_some_are_always_left(limit: int) -> None:
    """The kernel uses a page of a pipe again only once all of it was read; none may run out."""
    ends = SharedPermits.create(limit)
    permits = SharedPermits(ends)
    try:
        for _ in range(9000):
            assert permits.take()
            permits.give()
        assert [permits.take() for _ in range(limit + 1)] == [True] * limit + [False]
    finally:
        for end in ends:
            os.close(end)


def test_own_permits() -> None:
    two = OwnPermits(2)
    assert [two.take(), two.take(), two.take()] == [True, True, False]
    two.give()
    assert two.take() and all(OwnPermits(None).take() for _ in range(5))


def test_open_files() -> None:
    check_open_files(960, 1, most=1024)
    check_open_files(2000, 2, most=1064)
    check_open_files(10**6, 1, most=-1)  # no limit at all
    with pytest.raises(UsageError, match="ulimit"):
        check_open_files(961, 1, most=1024)


def test_results_of_workers() -> None:
    one = {"cpu_s": 1.0, "cpu_share": 0.2, "lag_p99_ms": 0.1, "lag_max_ms": 9.0, "preempted": 1, "cpus": [1]}
    two = {"cpu_s": 2.0, "cpu_share": 0.4, "lag_p99_ms": None, "lag_max_ms": 1.0, "preempted": 2, "cpus": [2]}
    ends = [{"start_ns": 5, "end_ns": None, "failure": None}, {"start_ns": 5, "end_ns": 9, "failure": "x"}]
    merged = merged_result([one | ends[0], two | ends[1]])
    assert (merged["cpu_s"], merged["cpu_share"], merged["lag_max_ms"], merged["preempted"]) == (
        3.0,
        0.4,
        9.0,
        3,
    )
    assert (merged["lag_p99_ms"], merged["cpus"], merged["workers"]) == (0.1, [1, 2], 2)
    assert (merged["end_ns"], merged["failure"]) == (9, "x")
    assert [each.get("cpu_s") for each in merged["each_worker"]] == [1.0, 2.0]
    assert merged["realtime"] is False
    assert merged_result([one | ends[0] | {"realtime": True}, two | ends[1]])["realtime"] is False
    assert merged_result([each | {"realtime": True} for each in (one | ends[0], two | ends[1])])["realtime"]
    assert merged_result([{"cpu_s": 1.0}]) == {"cpu_s": 1.0, "workers": 1}
    assert merged_result([{}, {}]) == {"workers": 2}


def test_cores_of_workers_add_up() -> None:
    """Their busiest one's share is kept beside; what all of them used is nobody else's work."""
    merged = merged_result([{"cpu_share": 0.25, "start_ns": 5}, {"cpu_share": 0.5, "start_ns": 5}])
    assert (cores_used(merged), merged["cpu_share"]) == (0.75, 0.5)
    assert cores_used(merged_result([{"cpu_share": 0.25}])) == 0.25
    assert cores_used(merged_result([{"cpu_share": 0.25, "start_ns": 5}, {}])) == 0.25
    assert cores_used(merged_result([{}, {}])) is None
