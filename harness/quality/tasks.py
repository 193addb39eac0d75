"""The tasks that are scored by item: what is checked before anything starts, and what is asked of the server."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from harness.core.errors import UsageError
from harness.core.tokenizer import Tokenizer
from harness.quality import rag, summary
from harness.quality.options import (
    QualityOptions,
    RagQualityOptions,
    ReasoningOptions,
    SummaryQualityOptions,
)
from harness.quality.reasoning import check_reasoning, draw_reasoning, reasoning_cells
from harness.quality.scoring import Choice, LogProbs, longest_of, margins, option_shares


@dataclass(frozen=True, slots=True)
class Route:
    """How the server is asked. log_probs: None where there are none, and no_log_probs says why.

    chunk: tokens the engine is fed at once, None where that is not known. say: told the progress.
    """

    tokenizer: Tokenizer
    seed: int
    chunk: int | None
    go_on: Callable[[Sequence[int], int], str]
    log_probs: LogProbs | None
    no_log_probs: str
    say: Callable[[str], None]

    def progress(self, what: str) -> Callable[[int, int], None]:
        """Says `what` and how many items are done."""
        return lambda done, of: self.say(f"{what} {done} of {of}")


def check_tasks(options: QualityOptions, tokenizer: Tokenizer, seed: int, context_length: int) -> None:
    """Raise UsageError for options of which no item can be made, or none that fits the context."""
    if options.rag is not None:
        rag.check_rag(options.rag)
        questions = rag.draw_rag(options.rag, tokenizer, seed)
        answers = max(len(item.ids) for item in questions) + options.rag.answer_tokens
        choices = [item.choice for item in questions]
        _check_fit(
            "rag", "chunks_per_query or chunk_tokens", max(answers, longest_of(choices)), context_length
        )
    if options.summary is not None:
        summary.check_summary(options.summary)
        documents = summary.draw_summary(options.summary, tokenizer, seed)
        answers = options.summary.prompt_tokens + options.summary.answer_tokens
        choices = [one for item in documents for one in item.choices]
        _check_fit("summary", "prompt_tokens", max(answers, longest_of(choices)), context_length)
    if options.reasoning is not None:
        check_reasoning(options.reasoning)
        choices = [item.choice for item in draw_reasoning(options.reasoning, tokenizer, seed)]
        _check_fit("reasoning", "grades or choices", longest_of(choices), context_length)


def _check_fit(task: str, keys: str, tokens: int, context_length: int) -> None:
    if tokens > context_length:
        raise UsageError(
            f"quality={task}: a prompt and its answer take {tokens} tokens, more than the context of "
            f"{context_length}. Lower quality.{task}.{keys}, or raise backend.context_length."
        )


def measure_tasks(options: QualityOptions, route: Route) -> dict[str, Any]:
    """The keys of every task that is asked for; `T_reason` where an engine has no route to options' probabilities."""
    result: dict[str, Any] = {}
    if options.rag is not None:
        result |= _rag(options.rag, route)
    if options.summary is not None:
        result |= _summary(options.summary, route)
    if options.reasoning is not None:
        result |= _reasoning(options.reasoning, route)
    return result


def _rag(options: RagQualityOptions, route: Route) -> dict[str, Any]:
    items = rag.draw_rag(options, route.tokenizer, route.seed)
    found = rag.found_in_answers(items, options.answer_tokens, route.go_on, route.progress("RAG, answer"))
    return found | _chosen("rag_options", [item.choice for item in items], route, "RAG, options of prompt")


def _summary(options: SummaryQualityOptions, route: Route) -> dict[str, Any]:
    items = summary.draw_summary(options, route.tokenizer, route.seed)
    found = summary.found_in_summaries(
        items, options.answer_tokens, route.go_on, route.progress("summaries, document")
    )
    choices = [one for item in items for one in item.choices]
    documents = [i for i, item in enumerate(items) for _ in item.choices]
    return found | _chosen("summary_options", choices, route, "summaries, options of fact", documents)


def _reasoning(options: ReasoningOptions, route: Route) -> dict[str, Any]:
    items = draw_reasoning(options, route.tokenizer, route.seed)
    found = _chosen("reasoning", [item.choice for item in items], route, "reasoning, item")
    if found["reasoning"] is not None:
        found["reasoning_cells"] = reasoning_cells(items, found["reasoning_right"])
    return found


def _chosen(
    name: str, choices: Sequence[Choice], route: Route, what: str, groups: Sequence[int] | None = None
) -> dict[str, Any]:
    """Which options the model holds for the most probable. groups: of each choice, where several make one item."""
    if route.log_probs is None:
        return {name: None, f"{name}_reason": route.no_log_probs}
    found = margins(choices, route.log_probs, route.progress(what))
    return option_shares(name, choices, found, route.chunk, groups)
