"""load.workers as a number."""

import pytest

from harness.calibrate.kept import Capacity
from harness.core.errors import UsageError
from harness.core.requests import Plan
from harness.load.check import check_load
from harness.worker_count import worker_count
from tests.support.client_jobs import load, plan

HERE = Capacity(tokens_per_s=1000.0, tokens_limited_by="client", streams=500, streams_limited_by="client")
PLAN = Plan("any", 0, tuple(plan(20, tokens=50, turns=2)), ())  # 100 tokens a session


def test_a_number_is_that_number() -> None:
    assert worker_count(load(workers="3"), PLAN, None, 2) == 3


def test_auto_is_one_where_nothing_was_calibrated() -> None:
    assert worker_count(load(concurrency=10_000), PLAN, None, 64) == 1


@pytest.mark.parametrize(
    ("concurrency", "cores", "count"), [(4, 16, 1), (500, 16, 1), (501, 16, 2), (9000, 16, 15)]
)
def test_streams_of_a_closed_loop(concurrency: int, cores: int, count: int) -> None:
    assert worker_count(load(concurrency=concurrency), PLAN, HERE, cores) == count


@pytest.mark.parametrize(
    ("rate", "cores", "count"), [(1.0, 16, 1), (10.0, 16, 1), (10.1, 16, 2), (35.0, 16, 4), (35.0, 2, 1)]
)
def test_tokens_of_an_open_loop(rate: float, cores: int, count: int) -> None:
    options = load(name="constant", rate=rate, concurrency=None)
    assert worker_count(options, PLAN, HERE, cores) == count


def test_a_client_that_could_do_nothing_is_no_reason_for_infinitely_many() -> None:
    assert worker_count(load(), PLAN, Capacity(0.0, "client", 0, "client"), 8) == 1


@pytest.mark.parametrize("workers", ["0", "-1", "two", "1.5", ""])
def test_what_is_no_number(workers: str) -> None:
    with pytest.raises(UsageError, match=r"load\.workers"):
        check_load(load(workers=workers))
