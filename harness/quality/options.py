"""What is measured of the answers' quality beside speed: one dataclass a task; values come from conf/quality/."""

from dataclasses import dataclass, fields

from omegaconf import MISSING


@dataclass
class PerplexityOptions:
    """Perplexity of real text.

    text: file whose text is predicted; null takes the Python documentation.
    tokens: length of the text in tokens. window: tokens per context. stride: step between windows; null is the
        window, so that windows share nothing.
    """

    text: str | None = MISSING
    tokens: int = MISSING
    window: int = MISSING
    stride: int | None = MISSING


@dataclass
class RecallOptions:
    """Facts planted in real text and asked for.

    lengths: tokens of a prompt. depths: where the fact stands, from 0 (beginning) to 1 (end). trials: prompts for
        each length and depth. facts: how many stand in a prompt, of which one is asked for.
    question_first: whether the question also stands before the text, where a method that drops entries while it
        reads can see what matters; otherwise it only follows.
    """

    lengths: list[int] = MISSING
    depths: list[float] = MISSING
    trials: int = MISSING
    facts: int = MISSING
    question_first: bool = MISSING


@dataclass
class RagQualityOptions:
    """Questions over retrieved chunks, as `workload=rag` asks them.

    prompts: how many questions. chunks: size of the store. chunks_per_query: chunks in a prompt, of which one has the
        answer. chunk_tokens: length of a chunk, about. answer_tokens: how much the model may write.
    """

    prompts: int = MISSING
    chunks: int = MISSING
    chunks_per_query: int = MISSING
    chunk_tokens: int = MISSING
    answer_tokens: int = MISSING


@dataclass
class SummaryQualityOptions:
    """Facts planted in documents that are to be summarized, as `workload=summarization` asks.

    documents: how many. prompt_tokens: length of each prompt. facts: planted in each. answer_tokens: how much the
        model may write.
    """

    documents: int = MISSING
    prompt_tokens: int = MISSING
    facts: int = MISSING
    answer_tokens: int = MISSING


@dataclass
class ReasoningOptions:
    """Chains of assignments to follow, and of additions to compute, with a choice of answers.

    grades: lengths of the chains. items: of each kind and grade. choices: answers to choose from; as many chains
        stand in a prompt where variables are followed. prompt_tokens: length of a prompt, about; a shorter one is
        filled with words between what is given and what is asked.
    """

    grades: list[int] = MISSING
    items: int = MISSING
    choices: int = MISSING
    prompt_tokens: int = MISSING


@dataclass
class AgreementOptions:
    """Greedy continuations of real text, and the distributions of its own next tokens, to be compared between runs.

    prompts: how many. prompt_tokens: length of each. tokens: how many are generated, and at how many positions of the
    real text the next token is looked at. alternatives: of how many most probable tokens the probability is kept
    there, as far as the engine tells them.
    """

    prompts: int = MISSING
    prompt_tokens: int = MISSING
    tokens: int = MISSING
    alternatives: int = MISSING


@dataclass
class QualityOptions:
    """The tasks of a run, null for those that are not asked for (`quality=[perplexity,recall]` asks for two).

    chunk: tokens fed at once through the KV cache that is judged; null feeds as the measured run does.
    """

    chunk: int | None = MISSING
    perplexity: PerplexityOptions | None = None
    recall: RecallOptions | None = None
    rag: RagQualityOptions | None = None
    summary: SummaryQualityOptions | None = None
    reasoning: ReasoningOptions | None = None
    agreement: AgreementOptions | None = None

    def asked(self) -> tuple[str, ...]:
        """Names of the tasks that are asked for."""
        names = (field.name for field in fields(self) if field.name != "chunk")
        return tuple(name for name in names if getattr(self, name) is not None)
