"""The store a RAG workload retrieves from: chunks of the corpus, each with one fact of the same form."""

import math
from dataclasses import dataclass

import numpy as np

from harness.core.errors import UsageError
from workloads.corpus import Document
from workloads.drawing import Drawing
from workloads.facts import Fact, draw_facts, gap, plant
from workloads.streams import Stream

_LINE = 120  # characters within which a fact may move to stand between two lines


@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk, the same text whenever it is drawn; `rank` 0 is the most popular one."""

    rank: int
    text: str
    fact: Fact
    depth: float  # of the fact inside the chunk, in characters, 0 to 1


def popularity(count: int, exponent: float) -> np.ndarray:
    """Zipf's law over ranks: p(r) proportional to (r + 1) ** -exponent, shape (count,), sum 1."""
    weights = np.arange(1, count + 1, dtype=np.float64) ** -exponent
    return weights / weights.sum()


def draw_ranks(stream: Stream, probabilities: np.ndarray, k: int) -> list[int]:
    """k distinct ranks, drawn one after another without replacement with these probabilities.

    By the Gumbel-top-k identity: the k largest of log p + Gumbel noise, in descending order, are such a draw.
    """
    uniforms = np.clip(stream.uniforms(len(probabilities)), 1e-300, None)
    keys = np.log(probabilities) - np.log(-np.log(uniforms))
    return [int(rank) for rank in np.argsort(-keys, kind="stable")[:k]]


def build_store(
    drawing: Drawing, count: int, chunk_tokens: int, taken: set[str], warmup: bool = False
) -> list[Chunk]:
    """`count` chunks of about `chunk_tokens` tokens, none of which share text.

    taken: codes that must not be planted; it gains those that are. Raises UsageError where the corpus has not
    text enough.
    """
    kind = "warmup" if warmup else "measured"
    pool = drawing.reserve if warmup else drawing.measured
    facts = draw_facts(drawing.stream("rag", "facts", kind), count, taken, warmup)
    room = chunk_tokens - len(drawing.tokenizer.encode(facts[0].sentence)) - 2
    if room < 8:
        raise UsageError(
            f"workload.chunk_tokens={chunk_tokens} leaves no text beside the planted fact. Use 48 or more."
        )
    pieces: list[str] = []
    for index in drawing.stream("rag", "chunks", kind, "documents").permutation(len(pool.documents)):
        pieces += _cut(drawing, pool.documents[index], room)
        if len(pieces) >= count:
            break
    if len(pieces) < count:
        raise UsageError(
            f"The corpus {drawing.corpus.name} has text for {len(pieces)} chunks of {chunk_tokens} "
            f"tokens, and {count} are needed ({kind}). Lower workload.chunks or workload.chunk_tokens."
        )
    order = drawing.stream("rag", "chunks", kind, "order").permutation(len(pieces))
    depths = drawing.stream("rag", "chunks", kind, "depths").uniforms(count)
    chunks = []
    for rank in range(count):
        piece, fact = pieces[order[rank]], facts[rank]
        position = math.floor(float(depths[rank]) * len(piece))
        text = plant(piece, [fact.sentence], [gap(piece, position, position + _LINE)])
        chunks.append(Chunk(rank, text, fact, round(text.index(fact.sentence) / len(text), 4)))
    return chunks


def _cut(drawing: Drawing, document: Document, tokens: int) -> list[str]:
    """Consecutive pieces of about `tokens` tokens; what is left over at the end is dropped."""
    text = document.text.strip()
    ends = [end for _, end in drawing.tokenizer.encode_with_offsets(text)[1]]
    pieces = []
    begin, first = 0, 0
    while first + tokens <= len(ends):
        end = ends[first + tokens - 1]
        gap = text.rfind(" ", begin, end)  # cut between words, as long as the piece stays about as long
        if 0 < end - gap < 40 and gap > begin:
            end = gap
        if piece := text[begin:end].strip():
            pieces.append(piece)
        begin = end
        first += tokens
    return pieces
