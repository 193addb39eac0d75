import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from harness.core.errors import UsageError
from workloads.lengths import parse_length, parse_output, parse_seconds
from workloads.streams import Stream


@pytest.mark.parametrize("value", [1, 256, "256", 256.0])
def test_a_number_is_always_that_length(value: object) -> None:
    length = parse_length("workload.prompt_tokens", value)
    assert {length.draw_int(Stream(i, "x")) for i in range(5)} == {int(float(str(value)))}


def test_a_range_gives_every_whole_number_equally_often() -> None:
    length, stream = parse_length("k", "3..6"), Stream(0, "x")
    drawn = [length.draw_int(stream) for _ in range(4000)]
    counts = [drawn.count(value) for value in (3, 4, 5, 6)]
    assert sum(counts) == 4000
    assert stats.chisquare(counts).pvalue > 1e-4


def test_lognormal_has_the_stated_median_and_sigma() -> None:
    length, stream = parse_length("k", "lognormal:200:0.5"), Stream(0, "x")
    logs = [math.log(length.draw(stream)) for _ in range(4000)]
    assert stats.kstest(logs, "norm", args=(math.log(200), 0.5)).pvalue > 1e-4


def test_lognormal_stays_within_its_bounds_and_reaches_them() -> None:
    length, stream = parse_length("k", "lognormal:100:1.5:40:160"), Stream(0, "x")
    drawn = [length.draw_int(stream) for _ in range(500)]
    assert (min(drawn), max(drawn)) == (40, 160)


@given(low=st.integers(1, 10_000), width=st.integers(0, 10_000), seed=st.integers(0, 2**32))
def test_a_range_is_never_left(low: int, width: int, seed: int) -> None:
    drawn = parse_length("k", f"{low}..{low + width}").draw_int(Stream(seed, "x"))
    assert low <= drawn <= low + width


@pytest.mark.parametrize(
    "value",
    [
        0,
        -3,
        "abc",
        "",
        "8..4",
        "0..4",
        "1.5",
        2.5,
        "lognormal:64",
        "lognormal:0:1",
        "lognormal:64:-1",
        "5..",
        None,
        True,
        [3],
        "nan",
        "inf",
        "1..inf",
        "lognormal:64:1:9:3",
        "lognormal:64:nan",
        "free",
    ],
)
def test_what_is_no_length_is_refused_by_the_name_of_its_key(value: object) -> None:
    with pytest.raises(UsageError, match=r"^workload\.prompt_tokens=.*Use a number"):
        parse_length("workload.prompt_tokens", value)


def test_output_may_be_free_with_or_without_a_bound() -> None:
    free, bounded, fixed = (parse_output("k", value) for value in ("free", "free:99", 7))
    assert (free.fixed, free.maximum) == (None, None)
    assert (bounded.fixed, bounded.maximum) == (None, 99)
    assert fixed.fixed is not None and fixed.fixed.low == fixed.fixed.high == 7


@pytest.mark.parametrize("value", ["free:", "free:0", "free:-1", "free:x", "free:1:2", "abc"])
def test_what_is_no_output_length_is_refused_and_free_is_named(value: str) -> None:
    with pytest.raises(UsageError, match=rf"^workload\.output_tokens={value}: .*free:MAX"):
        parse_output("workload.output_tokens", value)


def test_seconds_may_be_zero_and_fractions() -> None:
    assert parse_seconds("k", 0).draw(Stream(0, "x")) == 0
    assert 0.25 <= parse_seconds("k", "0.25..0.75").draw(Stream(0, "x")) < 0.75
    with pytest.raises(UsageError, match="less than 0"):
        parse_seconds("workload.think_time_s", -1)


def test_streams_are_told_apart_by_name_and_seed() -> None:
    firsts = {Stream(seed, *names).uniform() for seed in (0, 1) for names in (("a", 1), ("a", 2), ("b", 1))}
    assert len(firsts) == 6
    with pytest.raises(UsageError, match="seed=-1"):
        Stream(-1, "a")


def test_a_permutation_holds_each_index_once() -> None:
    assert sorted(Stream(3, "p").permutation(100)) == list(range(100))
