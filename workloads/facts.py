"""Facts to plant in a text: sentences of one form, names and codes that the text itself does not hold.

The method is the usual one of long-context recall tests: a sentence that the text does not imply, so that
only a model that read that place can answer.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from harness.core.errors import UsageError
from workloads.streams import Stream

_FIRST = (  # noqa: SIM905
    "Amber Ancient Autumn Azure Bright Bronze Calm Clever Cobalt Copper Coral Crimson Crystal Distant "
    "Eager Eastern Emerald Fading Frozen Gentle Golden Granite Hidden Hollow Humble Indigo Iron Ivory "
    "Jade Keen Lively Lonely Lunar Mellow Misty Modest Noble Northern Olive Patient Pearl Polar Quiet "
    "Rapid Rising Ruby Rustic Sandy Scarlet Secret Silent Silver Solar Southern Steady Stone Sunny Swift "
    "Velvet Violet Wandering Western Wild Winter "
).split()
_SECOND = (  # noqa: SIM905
    "Anchor Badger Beacon Bridge Canyon Castle Cedar Cloud Comet Compass Condor Dolphin Eagle Ember "
    "Falcon Fern Forest Fountain Garden Glacier Harbor Harvest Hawk Heron Horizon Island Jaguar Juniper "
    "Kestrel Lantern Lark Leopard Lotus Maple Marble Meadow Meteor Mirror Mountain Oak Ocean Orchid Otter "
    "Owl Panther Pebble Pine Planet Prairie Raven River Sparrow Summit Thunder Tiger Timber Torch Tower "
    "Valley Violin Walnut Whale Willow Zephyr "
).split()
# The last first-words name warm-up facts only, so that a warm-up prompt shares no name with a measured one.
_WARMUP_WORDS = 8
_CODES = range(10_000, 100_000)
_SENTENCE = re.compile(r"The access code of project ([A-Z][a-z]+(?: [A-Z][a-z]+)*) is ([0-9]{5})\.")


@dataclass(frozen=True, slots=True)
class Fact:
    """A project's name and its access code (five digits)."""

    name: str
    code: str

    @property
    def stem(self) -> str:
        """Its sentence up to the code, which is how an answer begins."""
        return f"The access code of project {self.name} is"

    @property
    def sentence(self) -> str:
        """The fact as it stands in a text."""
        return f"{self.stem} {self.code}."

    @property
    def question(self) -> str:
        """What asks for it."""
        return f"What is the access code of project {self.name}?"


def codes_in(text: str) -> set[str]:
    """Every run of five digits in `text`, which no planted code may equal."""
    return {run[i : i + 5] for run in re.findall(r"[0-9]{5,}", text) for i in range(len(run) - 4)}


def facts_in(text: str) -> list[Fact]:
    """The planted facts whose sentences stand in `text`, in order."""
    return [Fact(name, code) for name, code in _SENTENCE.findall(text)]


def draw_facts(stream: Stream, count: int, taken: set[str], warmup: bool = False) -> list[Fact]:
    """`count` facts with names and codes of their own; codes are not in `taken`, which gains them.

    Fact i does not depend on `count`. Raises UsageError where more are asked for than can be told apart.
    """
    facts: list[Fact] = []
    names: set[str] = set()
    if count > _most(warmup) or len(taken) + count > len(_CODES) // 2:
        raise UsageError(
            f"{count} planted facts are more than can be told apart. Use a smaller workload.chunks "
            "or workload.facts."
        )
    first = _FIRST[-_WARMUP_WORDS:] if warmup else _FIRST[:-_WARMUP_WORDS]
    while len(facts) < count:
        # Three words, since two would not tell apart the thousands of chunks a large store has.
        name = " ".join(_pick(stream, words) for words in (first, first, _SECOND))
        code = str(_CODES[stream.below(len(_CODES))])
        if name in names or code in taken:
            continue
        names.add(name)
        taken.add(code)
        facts.append(Fact(name, code))
    return facts


def _most(warmup: bool) -> int:
    first = _WARMUP_WORDS if warmup else len(_FIRST) - _WARMUP_WORDS
    return first * first * len(_SECOND) // 2  # half of all, so that drawing a new one stays quick


def _pick(stream: Stream, words: Sequence[str]) -> str:
    return words[stream.below(len(words))]


def plant(text: str, sentences: Sequence[str], positions: Sequence[int]) -> str:
    """`text` with each sentence on a line of its own at its position (in characters, ascending)."""
    parts: list[str] = []
    done = 0
    for sentence, position in zip(sentences, positions, strict=True):
        parts.append(text[done:position].rstrip(" "))
        parts.append(f"\n{sentence}\n" if position else f"{sentence}\n")
        done = position + 1 if position and text[position : position + 1].isspace() else position
    return "".join((*parts, text[done:]))


def gap(text: str, begin: int, end: int) -> int:
    """The first position from `begin` up to `end` where a line ends, else where a word ends, else `begin`."""
    for mark in ("\n", " "):
        found = text.find(mark, begin, end)
        if found >= 0:
            return found
    return begin
