"""Summaries with planted facts: which of them are in what the model writes, and which it can tell apart.

A prompt is what `workload=summarization` sends: real text with planted facts, then the instruction to summarize it
and to name them. Two figures of it, both a share of the facts by document, since the facts of one document stand or
fall together. `summary`: the fact's code stands in the summary. `summary_options`: after the fact's beginning ("The
access code of project … is") its code is more probable than those of the document's other facts; guessing gives
1 / facts.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from harness.core.errors import UsageError
from harness.core.tokenizer import Tokenizer
from harness.quality.options import SummaryQualityOptions
from harness.quality.rag import Continue
from harness.quality.scoring import Choice, choice, shares
from harness.quality.texts import drawing, drawn_once
from workloads.facts import facts_in
from workloads.options import SummarizationOptions
from workloads.summarization import draw


@dataclass(frozen=True, slots=True)
class Item:
    """One document. codes: of its facts, in order; choices: for each fact all codes as options."""

    ids: tuple[int, ...]
    codes: tuple[str, ...]
    choices: tuple[Choice, ...]


def check_summary(options: SummaryQualityOptions) -> None:
    """Raise UsageError for options of which no item can be made."""
    for key, least in (("documents", 1), ("facts", 2), ("answer_tokens", 1)):
        if getattr(options, key) < least:
            raise UsageError(f"quality.summary.{key}={getattr(options, key)} must be at least {least}.")


@drawn_once
def draw_summary(options: SummaryQualityOptions, tokenizer: Tokenizer, seed: int) -> Sequence[Item]:
    """The documents by the workload's generator; an item does not depend on how many are drawn.

    Raises UsageError where a prompt has no room for its facts.
    """
    wanted = SummarizationOptions(
        name="summarization",
        requests=options.documents,
        prompt_tokens=options.prompt_tokens,
        output_tokens=options.answer_tokens,
        facts=options.facts,
        system_prompt=None,
    )
    try:
        plan = draw(wanted, drawing(tokenizer, seed))
    except UsageError as error:
        raise UsageError(str(error).replace("workload.", "quality.summary.")) from error
    items = []
    for request in plan.requests:
        facts = facts_in(request.messages[-1]["content"])
        codes = tuple(fact.code for fact in facts)
        choices = tuple(
            choice(
                tokenizer,
                request.prompt_ids,
                fact.stem,
                [f" {code}" for code in (fact.code, *(other for other in codes if other != fact.code))],
            )
            for fact in facts
        )
        items.append(Item(request.prompt_ids, codes, choices))
    return items


def found_in_summaries(
    items: Sequence[Item],
    tokens: int,
    go_on: Continue,
    on_item: Callable[[int, int], None] = lambda done, of: None,
) -> dict[str, Any]:
    """`summary` and its keys, from what the model writes; `on_item(done, of)` is told the progress."""
    right = []
    for done, item in enumerate(items):
        on_item(done, len(items))
        text = go_on(item.ids, tokens)
        right.append(sum(code in text for code in item.codes) / len(item.codes))
    on_item(len(items), len(items))
    return shares("summary", right, chance=0.0)
