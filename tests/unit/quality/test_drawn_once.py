"""Items are drawn once for options of the same values, and anew for any other."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest

from harness.core.tokenizer import Tokenizer
from harness.quality.texts import drawn_once
from tests.support.model import embedded_tokenizer


@dataclass
class _Options:
    lengths: list[int]


def _counted() -> tuple[list[int], Callable[[_Options, Tokenizer, int], Sequence[int]]]:
    calls: list[int] = []

    @drawn_once
    def draw(options: _Options, tokenizer: Tokenizer, seed: int) -> list[int]:
        calls.append(seed)
        if seed < 0:
            raise ValueError("no such seed")
        return [length + seed for length in options.lengths]

    return calls, draw


def test_equal_options_are_drawn_once_and_others_anew() -> None:
    calls, draw = _counted()
    tokenizer = embedded_tokenizer()
    options = _Options([1, 2])
    assert list(draw(options, tokenizer, 3)) == [4, 5]
    assert draw(_Options([1, 2]), tokenizer, 3) is draw(options, tokenizer, 3)
    assert calls == [3]
    options.lengths.append(3)  # the same object with other values is another wish
    assert list(draw(options, tokenizer, 3)) == [4, 5, 6]
    assert list(draw(options, tokenizer, 4)) == [5, 6, 7]
    assert calls == [3, 3, 4]


def test_the_oldest_are_forgotten() -> None:
    calls, draw = _counted()
    tokenizer = embedded_tokenizer()
    for seed in (*range(40), 0):
        draw(_Options([1]), tokenizer, seed)
    assert calls.count(0) == 2


def test_a_refusal_is_not_remembered() -> None:
    calls, draw = _counted()
    tokenizer = embedded_tokenizer()
    for _ in range(2):
        with pytest.raises(ValueError, match="no such seed"):
            draw(_Options([1]), tokenizer, -1)
    assert calls == [-1, -1]
