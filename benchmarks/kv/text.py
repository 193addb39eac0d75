"""The text that quality is measured on: two halves that share no document, windows of them, and needles in them.

`auto` was chosen on the half "tune" and is judged on the half "judge".
"""

from collections.abc import Sequence
from dataclasses import dataclass

from harness.core.errors import UsageError
from harness.core.tokenizer import Tokenizer
from workloads.corpus import read_corpus
from workloads.facts import codes_in, draw_facts
from workloads.options import CorpusOptions
from workloads.streams import Stream

HALVES = ("tune", "judge")
_PYDOC = CorpusOptions("pydoc", None, "", None, None, "", None, 1 << 40)


@dataclass(frozen=True, slots=True)
class Window:
    """A prompt, and the text that follows it, whose tokens are predicted."""

    prompt: list[int]
    continuation: list[int]


@dataclass(frozen=True, slots=True)
class Needle:
    """Real text with a code of five digits in one sentence of it, and the question that asks for it."""

    context: list[int]
    question: list[int]
    code: str


def half_of_corpus(half: str) -> str:
    """The Python documentation that every CPython carries: the documents that begin in the first half of its
    characters, or in the second."""
    if half not in HALVES:
        raise UsageError(f"--half {half} is unknown. Choose one of {', '.join(HALVES)}.")
    texts = [document.text for document in read_corpus(_PYDOC).documents]
    begins = [sum(map(len, texts[:i])) for i in range(len(texts))]
    middle = sum(map(len, texts)) / 2
    return "\n\n".join(
        text for text, begin in zip(texts, begins, strict=True) if (begin >= middle) == (half == "judge")
    )


def windows(ids: Sequence[int], count: int, prompt: int, predicted: int) -> list[Window]:
    """Disjoint windows, spread evenly over the text. Raises UsageError where so many don't fit."""
    length = prompt + predicted
    if count * length > len(ids):
        raise UsageError(f"{count} windows of {length} tokens don't fit a text of {len(ids)}. Use fewer.")
    starts = [i * (len(ids) // count) for i in range(count)]
    return [Window(list(ids[i : i + prompt]), list(ids[i + prompt : i + length])) for i in starts]


def needles(tokenizer: Tokenizer, text: str, count: int, length: int, seed: int) -> list[Needle]:
    """`count` trials whose context and question are `length` tokens together; depth and place in the text are random.

    Trial i doesn't depend on `count`. Needle in a haystack (Kamradt 2023) with the facts of `workloads.facts`.
    """
    haystack = tokenizer.encode(text)
    taken = codes_in(text)
    return [
        _needle(tokenizer, haystack, taken, length, Stream(seed, "needle", trial)) for trial in range(count)
    ]


def _needle(
    tokenizer: Tokenizer, haystack: list[int], taken: set[str], length: int, stream: Stream
) -> Needle:
    fact = draw_facts(stream, 1, set(taken))[0]
    stem = fact.sentence.removesuffix(f" {fact.code}.")
    question = tokenizer.encode(f"\n\nQuestion: {fact.question}\nAnswer: {stem}")
    sentence = tokenizer.encode(f"\n{fact.sentence}\n")
    room = length - len(question) - len(sentence)
    first = int(stream.uniform() * (len(haystack) - room + 1))
    filler = haystack[first : first + room]
    depth = stream.below(room + 1)
    return Needle([*filler[:depth], *sentence, *filler[depth:]], question, fact.code)
