"""The text that quality tasks are made from: the documentation that every CPython carries."""

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
