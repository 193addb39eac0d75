"""The text that quality tasks are made from: the documentation that every CPython carries."""

from collections.abc import Callable, Sequence
from functools import cache, wraps
from typing import ParamSpec, TypeVar

from harness.core.tokenizer import Tokenizer
from workloads.corpus import read_corpus
from workloads.drawing import Drawing
from workloads.options import CorpusOptions
from workloads.pool import split_pools

PYTHON_DOCUMENTATION = CorpusOptions(
    name="pydoc",
    path=None,
    column="",
    dataset=None,
    subset=None,
    split="",
    revision=None,
    max_characters=10**9,
)

_KEPT = 8  # draws of a task: more than a sweep over its options needs, less than memory would notice

Given = ParamSpec("Given")
Item = TypeVar("Item")


def drawn_once(draw: Callable[Given, Sequence[Item]]) -> Callable[Given, Sequence[Item]]:
    """Remembers the latest draws: each run asks for its items several times, and the runs of a sweep for the same.

    `draw` must be a pure function of its arguments, options by their values.
    """
    kept: dict[tuple[object, ...], Sequence[Item]] = {}

    @wraps(draw)
    def remembered(*args: Given.args, **named: Given.kwargs) -> Sequence[Item]:
        # Options are dataclasses with lists, which cannot be keys; what they print says all that is in them.
        given = (*args, *named.items())
        key = tuple(one if isinstance(one, Tokenizer | str) else repr(one) for one in given)
        if key not in kept:
            found = tuple(draw(*args, **named))
            while len(kept) >= _KEPT:
                del kept[next(iter(kept))]
            kept[key] = found
        return kept[key]

    return remembered


@cache
def documentation() -> str:
    """All of it as one text."""
    return "\n\n".join(document.text for document in read_corpus(PYTHON_DOCUMENTATION).documents)


def drawing(tokenizer: Tokenizer, seed: int) -> Drawing:
    """What a workload's generator draws from, for a task that asks what the workload asks; no warm-up, and no answers
    of free length, which alone would need to know the context's.
    """
    corpus = read_corpus(PYTHON_DOCUMENTATION)
    measured, reserve = split_pools(corpus, tokenizer.special_texts)
    return Drawing(tokenizer, seed, 0, 0, corpus, measured, reserve)
