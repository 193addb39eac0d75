import pytest

from harness.records.paths import pick
from harness.report.values import MISSING, duration, flatten, listed, memory, money, number, signed


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, MISSING),
        (float("nan"), MISSING),
        (0, "0"),
        (0.01234, "0.0123"),
        (0.999, "1.00"),
        (1.234, "1.23"),
        (9.999, "10.0"),
        (12.345, "12.3"),
        (99.96, "100"),
        (1234.5, "1,234"),
        (-12.345, "-12.3"),
    ],
)
def test_three_significant_digits_and_a_dash_for_the_unknown(value: float | None, text: str):
    assert number(value) == text


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (None, MISSING),
        (0, "0"),
        (1234.5, "1,234"),
        (0.9, "0.900"),
        (0.0123456, "0.0123"),
        (1.234e-5, "0.0000123"),
    ],
)
def test_prices_are_never_written_with_an_exponent(amount: float | None, text: str):
    assert money(amount) == text


@pytest.mark.parametrize(
    ("ms", "text"), [(None, MISSING), (80, "80.0 ms"), (999.4, "999 ms"), (1240, "1.24 s")]
)
def test_durations_carry_their_unit(ms: float | None, text: str):
    assert duration(ms) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(None, MISSING), (0, "0 B"), (999, "999 B"), (23_040, "23.0 kB"), (6_912_000, "6.91 MB")],
)
def test_bytes_in_decimal_units(count: float | None, text: str):
    assert memory(count) == text


def test_dotted_paths_into_records():
    record = {"a": {"b": 1, "c": {}}, "d": [1, 2]}
    assert flatten(record) == {"a.b": 1, "a.c": {}, "d": [1, 2]}
    assert pick(record, "a.b") == 1
    assert pick(record, "a.b.c") is None
    assert pick(record, "x.y") is None


def test_lists_in_words():
    assert [listed(words) for words in ([], ["a"], ["a", "b"], ["a", "b", "c"])] == [
        "",
        "a",
        "a and b",
        "a, b and c",
    ]


@pytest.mark.parametrize(
    ("value", "decimals", "text"),
    [
        (-1.52, 1, "−1.5"),
        (0.21, 1, "+0.2"),
        (-0.04, 1, "0.0"),
        (-0.4, 0, "0"),
        (12.4, 0, "+12"),
        (float("inf"), 1, "∞"),
        (float("-inf"), 1, "−∞"),
    ],
)
def test_signs_stand_where_there_is_something_to_sign(value: float, decimals: int, text: str):
    assert signed(value, decimals) == text
