"""The corpus as running text to cut prompts from, in two parts that share nothing: measured and warm-up."""

from collections.abc import Sequence
from dataclasses import dataclass

from harness.core.errors import UsageError
from workloads.corpus import Corpus, Document
from workloads.streams import Stream

# A fixed share, so that another number of warm-up requests never changes what is measured.
_WARMUP_SHARE = 0.1
# Characters in which two beginnings must differ; the longer opening where a corpus has no more of the shorter.
_OPENING = 4
_LONG_OPENING = 16
_ATTEMPTS = 200


@dataclass(frozen=True, slots=True)
class Passage:
    """A place in a pool to read on from."""

    pool: "TextPool"
    start: int

    def read(self, characters: int) -> str:
        """`characters` characters from here on, starting over at the pool's beginning where it ends."""
        text = self.pool.text
        parts = [text[self.start : self.start + characters]]
        missing = characters - len(parts[0])
        while missing > 0:
            parts.append("\n\n" + text[:missing])
            missing -= len(parts[-1])
        return "".join(parts)[:characters]


class TextPool:
    """Documents joined into one text."""

    def __init__(self, documents: Sequence[Document]) -> None:
        self.documents = tuple(documents)
        self.text = "\n\n".join(document.text.strip() for document in documents)

    def passage(self, stream: Stream) -> Passage:
        """A random place where a paragraph begins (or a line, or any character, where text has none)."""
        return self.passage_at(stream.uniform())

    def passage_at(self, share: float) -> Passage:
        """The same after this share of the text, 0 to below 1."""
        position = int(share * len(self.text))
        for mark in ("\n\n", "\n", " "):
            found = self.text.find(mark, position, position + 5000)
            if found >= 0:
                start = found + len(mark)
                while start < len(self.text) and self.text[start].isspace():
                    start += 1
                return Passage(self, start if start < len(self.text) else 0)
        return Passage(self, position)


class Beginnings:
    """Remembers how texts began, so that no two prompts share a prefix by accident."""

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._drawn = 0

    def draw(self, pool: TextPool, stream: Stream) -> tuple[str, Passage]:
        """("", a passage with first characters of its own).

        Where the pool has no more of them, any passage and a number to put before it.
        """
        self._drawn += 1
        for attempt in range(_ATTEMPTS):
            passage = pool.passage(stream)
            opening = passage.read(_OPENING if attempt < _ATTEMPTS // 2 else _LONG_OPENING)
            if opening.strip() and opening not in self._seen:
                self._seen |= {opening, passage.read(_LONG_OPENING)}
                return "", passage
        return f"{self._drawn}. ", passage


def split_pools(corpus: Corpus, special_texts: Sequence[str]) -> tuple[TextPool, TextPool]:
    """(measured, warm-up): the last tenth of the corpus is kept for warm-up.

    Spellings of the tokenizer's special tokens are broken up with a space, since a marker inside a user's
    text would end the turn. Raises UsageError for a corpus too small to be split.
    """
    documents = [
        Document(document.name, without_markers(document.text, special_texts))
        for document in corpus.documents
    ]
    left = int((1 - _WARMUP_SHARE) * sum(len(document.text) for document in documents))
    if corpus.conversations:  # a conversation is never split
        left = sum(len(document.text) for document in documents[: -held_back_conversations(corpus)])
    measured: list[Document] = []
    warmup: list[Document] = []
    for document in documents:
        cut = _word_boundary(document.text, left) if 0 < left < len(document.text) else max(left, 0)
        left -= len(document.text)
        for part, target in ((document.text[:cut], measured), (document.text[cut:], warmup)):
            if part.strip():
                target.append(Document(document.name, part))
    if not measured or not warmup:
        raise UsageError(
            f"The corpus {corpus.name} holds too little text (a tenth of it is kept for warm-up). "
            "Give it at least some paragraphs, or use workload.corpus.name=pydoc."
        )
    return TextPool(measured), TextPool(warmup)


def held_back_conversations(corpus: Corpus) -> int:
    """How many conversations, the last ones, are kept for warm-up."""
    return max(1, int(_WARMUP_SHARE * len(corpus.conversations))) if corpus.conversations else 0


def without_markers(text: str, special_texts: Sequence[str]) -> str:
    """`text` with every spelling of a special token broken up."""
    for marker in special_texts:
        if marker in text and len(marker) > 1:
            text = text.replace(marker, f"{marker[0]} {marker[1:]}")
    return text


def _word_boundary(text: str, position: int) -> int:
    for cut in range(position, min(position + 200, len(text))):
        if text[cut].isspace():
            return cut
    return position
