import pytest

from harness.cores import CoreShares, share_cores, worker_cores


@pytest.mark.parametrize(
    ("available", "expected"),
    [
        ([0], CoreShares(None, None, None)),
        ([0, 1], CoreShares((0,), (1,), (1,))),
        ([2, 5, 9], CoreShares((2, 5), (9,), (9,))),
        ([0, 1, 2, 3], CoreShares((0, 1), (3,), (2,))),
        (list(range(16)), CoreShares(tuple(range(14)), (15,), (14,))),
    ],
)
def test_every_duty_gets_cores_of_its_own(available: list[int], expected: CoreShares):
    assert share_cores(available, pin=True) == expected


def test_without_pinning_nobody_is_confined():
    assert share_cores([0, 1, 2, 3], pin=False) == CoreShares(None, None, None)


@pytest.mark.parametrize(
    ("cores", "workers", "expected"),
    [
        (3, 2, CoreShares(None, None, None)),
        (4, 2, CoreShares((0,), (2, 3), (1,))),
        (8, 3, CoreShares((0, 1, 2, 3), (5, 6, 7), (4,))),
    ],
)
def test_several_workers_have_a_core_each_or_nobody_is_confined(
    cores: int, workers: int, expected: CoreShares
):
    assert share_cores(list(range(cores)), True, workers) == expected


def test_workers_beside_a_server_of_somebody_else():
    nobody = CoreShares(None, None, None)
    for elsewhere in (True, False):
        assert worker_cores([0, 1, 2], True, 2, elsewhere) == CoreShares(None, (1, 2), None)
        assert worker_cores([0, 1], True, 2, elsewhere) == nobody
        assert worker_cores([0, 1, 2], False, 2, elsewhere) == nobody
    assert worker_cores([0, 1, 2], True, 1, elsewhere=True) == CoreShares(None, (2,), None)
    assert worker_cores([0, 1, 2], True, 1, elsewhere=False) == nobody
    assert worker_cores([0], True, 1, elsewhere=True) == nobody


def test_threads_follow_the_engine_cores():
    assert share_cores([0, 1, 2, 3], pin=True).engine_threads() == 2
    assert share_cores([0], pin=True).engine_threads() >= 1
