"""What the user can say about a workload; values come from conf/workload/*.yaml.

Lengths are typed Any because they take a number or an expression ("32..128"): see workloads/lengths.py.
"""

from dataclasses import dataclass, field
from typing import Any

from omegaconf import MISSING


@dataclass
class CorpusOptions:
    """Where the text comes from.

    name: pydoc (the documentation every CPython carries), folder (.txt and .md files), jsonl or parquet (one
        column of a file), dataset (a Hugging Face dataset by name), sharegpt or messages (conversations).
    path: the folder or file; unused by pydoc and dataset.
    column: which column or JSON key holds the text (jsonl, parquet, dataset).
    dataset, subset, split, revision: a Hugging Face dataset's own names.
    max_characters: stop reading after this much text, so that a huge corpus does not fill the memory.
    """

    name: str = MISSING
    path: str | None = MISSING
    column: str = MISSING
    dataset: str | None = MISSING
    subset: str | None = MISSING
    split: str = MISSING
    revision: str | None = MISSING
    max_characters: int = MISSING


@dataclass
class WorkloadOptions:
    """What every workload understands.

    requests: how many measured requests are drawn (file: null means all of the file).
    prompt_tokens: exact length of a prompt in tokens, chat template included.
    output_tokens: tokens asked for: a length, or "free" or "free:MAX" to let the model stop by itself.
    history: scripted (pre-drawn answers in later turns) or real (what the engine answered); workloads of a
        single turn have no history and take either.
    save: write the plan to this JSONL file.
    """

    name: str = MISSING
    requests: int | None = MISSING
    prompt_tokens: Any = MISSING
    output_tokens: Any = MISSING
    history: str | None = MISSING
    save: str | None = MISSING
    corpus: CorpusOptions = field(default_factory=CorpusOptions)


@dataclass
class ChatOptions(WorkloadOptions):
    """Sessions of several turns, the whole history in each prompt.

    prompt_tokens: of the first turn, system prompt included; null takes a recorded conversation's own text.
    turns: requests of one session. user_tokens: new user text of each later turn.
    answer_tokens: length of scripted answers where output_tokens is free (else they are as long as the
        output).
    system_prompt: text all sessions share (null for none).
    system_tokens: make the system prompt exactly this long with corpus text; null leaves it as it is.
    think_time_s: pause between an answer and the next turn.
    """

    turns: Any = MISSING
    user_tokens: Any = MISSING
    answer_tokens: Any = MISSING
    system_prompt: str | None = MISSING
    system_tokens: int | None = MISSING
    think_time_s: Any = MISSING


@dataclass
class RagOptions(WorkloadOptions):
    """Questions over chunks that are drawn by popularity.

    prompt_tokens: null leaves the natural length (chunks and question).
    chunks: size of the store. chunk_tokens: length of a chunk, about. chunks_per_query: drawn for one
        question.
    zipf_exponent: popularity of the chunk of rank r is proportional to r ** -zipf_exponent (0: all alike).
    order: popular_first (drawn chunks sorted by popularity, so that prefixes repeat) or as_drawn.
    system_prompt: text all requests share (null for none).
    """

    chunks: int = MISSING
    chunk_tokens: int = MISSING
    chunks_per_query: int = MISSING
    zipf_exponent: float = MISSING
    order: str = MISSING
    system_prompt: str | None = MISSING


@dataclass
class SummarizationOptions(WorkloadOptions):
    """One long document, then the instruction to summarize it.

    facts: how many facts are planted for a summary to be checked for.
    system_prompt: text all requests share (null for none).
    """

    facts: int = MISSING
    system_prompt: str | None = MISSING


@dataclass
class FileOptions(WorkloadOptions):
    """A plan that was saved before, replayed as it is; lengths, history and corpus are the file's own (null).

    path: the JSONL file that workload.save wrote.
    """

    path: str | None = MISSING


@dataclass
class TraceWorkloadOptions(WorkloadOptions):
    """A recorded trace; its lengths are its own (null), its text comes from the corpus.

    path: the trace. format: auto (by its content), azure, burstgpt, mooncake or harness (a run's
        requests.parquet).
    first: usable requests of the file that are skipped. requests: how many follow; null means all.
    too_long: what happens to requests that do not fit the context: error, clip (shortened) or drop (left out).
    sessions: whether rows of one recorded session become turns of one; false makes each row a session of its own.
    """

    path: str | None = MISSING
    format: str = MISSING
    first: int = MISSING
    too_long: str = MISSING
    sessions: bool = MISSING
