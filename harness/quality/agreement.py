"""Greedy continuations, token by token: two engines that compute the same model write the same.

Each prompt is a piece of real text; what is kept are the most probable tokens that follow, one after another. Two
runs agree on a prompt up to the first position where they differ. The first difference is where two probabilities
were nearly equal, or where something is wrong; perplexity beside it tells which.
"""

from collections.abc import Callable, Sequence
from typing import Any

from harness.core.errors import UsageError
from harness.core.tokenizer import Tokenizer
from harness.quality.options import AgreementOptions
from workloads.streams import Stream

# Takes the ids of a prompt and a count; returns the ids of the tokens that follow.
Continue = Callable[[Sequence[int], int], Sequence[int]]


def check_agreement(options: AgreementOptions, longest: int) -> None:
    """Raise UsageError for options that cannot be measured within `longest` tokens."""
    for key in ("prompts", "prompt_tokens", "tokens"):
        if getattr(options, key) < 1:
            raise UsageError(f"quality.agreement.{key}={getattr(options, key)} must be at least 1.")
    if (total := options.prompt_tokens + options.tokens) > longest:
        raise UsageError(
            f"quality.agreement.prompt_tokens and .tokens are {total} tokens together, more than the context of "
            f"{longest}. Lower one of them, or raise backend.context_length."
        )


def agreement_prompts(
    options: AgreementOptions, tokenizer: Tokenizer, text: str, seed: int
) -> list[list[int]]:
    """Pieces of `text`, each `prompt_tokens` ids long; a piece does not depend on how many others are drawn."""
    ids = tokenizer.encode(text)
    if len(ids) < options.prompt_tokens:
        raise UsageError(f"quality.agreement.prompt_tokens: the text has only {len(ids)} tokens.")
    starts = (
        Stream(seed, "agreement", i).below(len(ids) - options.prompt_tokens + 1)
        for i in range(options.prompts)
    )
    return [ids[start : start + options.prompt_tokens] for start in starts]


def continuations(
    prompts: Sequence[Sequence[int]],
    tokens: int,
    go_on: Continue,
    on_prompt: Callable[[int, int], None] = lambda done, of: None,
) -> dict[str, Any]:
    """`greedy_ids`: for each prompt the ids that follow, at most `tokens` (fewer where the model ended)."""
    found = []
    for done, prompt in enumerate(prompts):
        on_prompt(done, len(prompts))
        found.append(list(go_on(prompt, tokens))[:tokens])
    on_prompt(len(prompts), len(prompts))
    return {"greedy_ids": found, "greedy_tokens": tokens}
