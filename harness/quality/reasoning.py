"""Chains of graded length: variables to follow and sums to compute, with a choice of answers.

variables: several chains of assignments stand mixed ("K = 83120", "B = K", "T = B"); the prompt asks for the last
name of one of them, and the values of all chains are the options. The grade counts a chain's assignments: 1 asks for
a name that was given a number, 2 for one that was given such a name (variable tracking: Hsieh et al. 2024, RULER).
arithmetic: a name is given a sum with as many additions and subtractions as the grade ("T = 86 - 8 + 3"); the options
are its result and other numbers of two digits. In both the answer is the option that the model holds for the most
probable, so that one too small to answer is still told from one that guesses.

Words of real text stand between what is given and what is asked, so that it is the KV cache that the answer is read
from, not the pass at hand (`reasoning_cached`).
"""

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from harness.core.errors import UsageError
from harness.core.tokenizer import Tokenizer
from harness.quality.options import ReasoningOptions
from harness.quality.scoring import Choice, choice
from harness.quality.texts import drawing, drawn_once
from workloads.pool import Passage
from workloads.streams import Stream

KINDS = ("variables", "arithmetic")

_NAMES = "ABCDEFGHJKLMNPQRSTUVWXYZ"  # without I and O, which look like digits
_VALUES = range(10_000, 100_000)
_RESULTS = range(10, 100)  # one length in digits, so that no option is told by its length
_STEPS = range(1, 10)
_WORD = re.compile(r"(?<!\S)[A-Za-z]{2,}[,.;:]?(?!\S)")
_CHARACTERS_PER_TOKEN = 16  # plenty: what is no word is left out


@dataclass(frozen=True, slots=True)
class Item:
    """One question. answers: as texts, the right one first; choice: the same as ids."""

    kind: str
    grade: int
    prompt: str
    answers: tuple[str, ...]
    choice: Choice


def check_reasoning(options: ReasoningOptions) -> None:
    """Raise UsageError for options of which no item can be made."""
    if options.items < 1:
        raise UsageError(f"quality.reasoning.items={options.items} must be at least 1.")
    if not options.grades or min(options.grades) < 1:
        raise UsageError(f"quality.reasoning.grades={list(options.grades)}: at least one, each 1 or more.")
    most = len(_NAMES) // max(options.grades)
    if not 2 <= options.choices <= most:
        raise UsageError(
            f"quality.reasoning.choices={options.choices}: with chains of {max(options.grades)} use 2 to {most}, "
            "as every name is one letter."
            if most >= 2
            else f"quality.reasoning.grades={list(options.grades)}: use at most {len(_NAMES) // 2}."
        )


@drawn_once
def draw_reasoning(options: ReasoningOptions, tokenizer: Tokenizer, seed: int) -> Sequence[Item]:
    """`items` of every kind and grade. An item does not depend on how many others are drawn, nor on the engine."""
    make = {"variables": _variables, "arithmetic": _arithmetic}
    pool = drawing(tokenizer, seed).measured
    items = []
    for kind in KINDS:
        for grade in options.grades:
            for i in range(options.items):
                stream = Stream(seed, "reasoning", kind, grade, i)
                given, name, answers = make[kind](stream, grade, options.choices)
                question = f"The value of {name} is"
                missing = options.prompt_tokens - len(tokenizer.encode(f"{given}\n\n\n\n{question}"))
                words = _words(tokenizer, pool.passage(stream), missing)
                prompt = f"{given}\n\n{words}\n\n{question}" if words else f"{given}\n\n{question}"
                items.append(Item(kind, grade, prompt, answers, choice(tokenizer, (), prompt, answers)))
    return items


def _variables(stream: Stream, length: int, chains: int) -> tuple[str, str, tuple[str, ...]]:
    """What is given, the name that is asked for, and the options."""
    drawn = [_NAMES[i] for i in stream.permutation(len(_NAMES))]
    names = [drawn[i * length : (i + 1) * length] for i in range(chains)]
    values = [str(_VALUES[value]) for value in _distinct(stream, len(_VALUES), chains)]
    lines = [
        [f"{first} = {value}", *(f"{later} = {earlier}" for earlier, later in zip(chain, rest, strict=False))]
        for (first, *rest), chain, value in zip(names, names, values, strict=True)
    ]
    mixed = []
    while left := [chain for chain in lines if chain]:
        mixed.append(left[stream.below(len(left))].pop(0))
    return "\n".join(mixed), names[0][-1], tuple(f" {value}" for value in values)


def _arithmetic(stream: Stream, steps: int, choices: int) -> tuple[str, str, tuple[str, ...]]:
    """What is given, the name that is asked for, and the options."""
    name = _NAMES[stream.below(len(_NAMES))]
    value = _RESULTS[stream.below(len(_RESULTS))]
    terms = [str(value)]
    for _ in range(steps):
        step = _STEPS[stream.below(len(_STEPS))]
        plus = stream.below(2) == 1
        if (value + step if plus else value - step) not in _RESULTS:
            plus = not plus
        value += step if plus else -step
        terms.append(f"{'+' if plus else '-'} {step}")
    others = [other for other in _RESULTS if other != value]
    wrong = [others[i] for i in _distinct(stream, len(others), choices - 1)]
    return f"{name} = {' '.join(terms)}", name, (f" {value}", *(f" {other}" for other in wrong))


def _words(tokenizer: Tokenizer, passage: Passage, tokens: int) -> str:
    """Words of the passage, so many tokens and to the end of the last word; no digit, sign or single letter, which
    would be more givens."""
    if tokens < 1:
        return ""
    text = " ".join(_WORD.findall(passage.read(tokens * _CHARACTERS_PER_TOKEN)))
    ends = [end for _, end in tokenizer.encode_with_offsets(text)[1]]
    if not ends:
        return ""
    end = text.find(" ", ends[min(tokens, len(ends)) - 1])
    return text if end < 0 else text[:end]


def _distinct(stream: Stream, bound: int, count: int) -> list[int]:
    """`count` different whole numbers below `bound`."""
    found: dict[int, None] = {}
    while len(found) < count:
        found.setdefault(stream.below(bound))
    return list(found)


def reasoning_cells(items: Sequence[Item], right: Sequence[float]) -> list[dict[str, Any]]:
    """Right answers by kind and grade."""
    cells: dict[tuple[str, int], list[float]] = defaultdict(list)
    for item, value in zip(items, right, strict=True):
        cells[item.kind, item.grade].append(value)
    return [
        {"kind": kind, "grade": grade, "right": int(sum(values)), "of": len(values)}
        for (kind, grade), values in cells.items()
    ]
