"""Answers from retrieved documents: the workload's own questions, each with one right answer among distractors.

A prompt is what `workload=rag` sends: chunks of real text, each with a fact of the same form, then a question that
one of them answers. Two figures of it. `rag`: the right code stands in what the model writes (greedily), and that of
no other chunk; copying any chunk's code is right in 1 / chunks of the prompts. `rag_options`: after the beginning of
the answer ("The access code of project … is") the right code is more probable than that of every other chunk;
guessing gives 1 / chunks, and a model too small to answer in its own words can still be told from one that guesses.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from harness.core.errors import UsageError
from harness.core.tokenizer import Tokenizer
from harness.quality.options import RagQualityOptions
from harness.quality.scoring import Choice, choice, shares
from harness.quality.texts import drawing, drawn_once
from workloads.facts import facts_in
from workloads.options import RagOptions
from workloads.rag import draw

# Takes the ids of a prompt and a count; returns the text that goes on.
Continue = Callable[[Sequence[int], int], str]


@dataclass(frozen=True, slots=True)
class Item:
    """One prompt. code: the right answer; others: the other chunks' codes; choice: all of them as options."""

    ids: tuple[int, ...]
    code: str
    others: tuple[str, ...]
    choice: Choice


def check_rag(options: RagQualityOptions) -> None:
    """Raise UsageError for options of which no item can be made."""
    for key, least in (("prompts", 1), ("chunks_per_query", 2), ("answer_tokens", 1)):
        if getattr(options, key) < least:
            raise UsageError(f"quality.rag.{key}={getattr(options, key)} must be at least {least}.")


@drawn_once
def draw_rag(options: RagQualityOptions, tokenizer: Tokenizer, seed: int) -> Sequence[Item]:
    """The questions by the workload's generator; an item does not depend on how many are drawn.

    Raises UsageError where chunks leave no room for a fact, or the text is too short.
    """
    wanted = RagOptions(
        name="rag",
        requests=options.prompts,
        prompt_tokens=None,
        output_tokens=options.answer_tokens,
        chunks=options.chunks,
        chunk_tokens=options.chunk_tokens,
        chunks_per_query=options.chunks_per_query,
        zipf_exponent=0.0,  # a popular chunk in many prompts would make them alike
        order="as_drawn",
        system_prompt=None,
    )
    try:
        plan = draw(wanted, drawing(tokenizer, seed))
    except UsageError as error:
        raise UsageError(str(error).replace("workload.", "quality.rag.")) from error
    items = []
    for request in plan.requests:
        facts = facts_in(request.messages[-1]["content"])
        (code,) = request.expected
        asked = next(fact for fact in facts if fact.code == code)
        others = tuple(fact.code for fact in facts if fact is not asked)
        options_of = [f" {found}" for found in (code, *others)]
        items.append(
            Item(
                request.prompt_ids,
                code,
                others,
                choice(tokenizer, request.prompt_ids, asked.stem, options_of),
            )
        )
    return items


def found_in_answers(
    items: Sequence[Item],
    tokens: int,
    go_on: Continue,
    on_item: Callable[[int, int], None] = lambda done, of: None,
) -> dict[str, Any]:
    """`rag` and its keys, from what the model writes; `on_item(done, of)` is told the progress."""
    right = []
    for done, item in enumerate(items):
        on_item(done, len(items))
        text = go_on(item.ids, tokens)
        right.append(float(item.code in text and not any(other in text for other in item.others)))
    on_item(len(items), len(items))
    return shares("rag", right, chance=sum(1 / (1 + len(item.others)) for item in items) / len(items))
