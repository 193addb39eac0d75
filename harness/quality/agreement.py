"""Greedy continuations, token by token: two engines that compute the same model write the same.

Each prompt is a piece of real text; what is kept are the most probable tokens that follow, one after another. Two
runs agree on a prompt up to the first position where they differ. The first difference is where two probabilities
were nearly equal, or where something is wrong; the distributions beside it tell which.

After that position the two runs read different texts, so the distributions of next tokens are taken over the real
text that follows the prompt, the same for every run (teacher forcing).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from harness.core.errors import UsageError
from harness.core.tokenizer import Tokenizer
from harness.quality.options import AgreementOptions
from workloads.streams import Stream

if TYPE_CHECKING:
    import pandas as pd

_MOST_ALTERNATIVES = 20  # what servers tell of one position unless they are configured otherwise

# Takes the ids of a prompt and a count; returns the ids of the tokens that follow.
Continue = Callable[[Sequence[int], int], Sequence[int]]
# Takes ids; returns for each of them, given those before it, the log-probabilities that are known by token, its own
# among them (of the first id nothing is known).
Distributions = Callable[[Sequence[int]], Sequence[Mapping[int, float]]]


def check_agreement(options: AgreementOptions, longest: int) -> None:
    """Raise UsageError for options that cannot be measured within `longest` tokens."""
    for key in ("prompts", "prompt_tokens", "tokens"):
        if getattr(options, key) < 1:
            raise UsageError(f"quality.agreement.{key}={getattr(options, key)} must be at least 1.")
    if not 1 <= options.alternatives <= _MOST_ALTERNATIVES:
        raise UsageError(
            f"quality.agreement.alternatives={options.alternatives} must lie between 1 and {_MOST_ALTERNATIVES}."
        )
    if (total := options.prompt_tokens + options.tokens) >= longest:
        raise UsageError(
            f"quality.agreement.prompt_tokens and .tokens are {total} tokens together, and with the one that is "
            f"generated after them more than the context of {longest}. Lower one of them, or raise "
            "backend.context_length."
        )


def agreement_pieces(
    options: AgreementOptions, tokenizer: Tokenizer, text: str, seed: int
) -> list[list[int]]:
    """Pieces of `text`: `prompt_tokens` ids, which are continued, then the `tokens` that really follow.

    A piece does not depend on how many others are drawn.
    """
    ids = tokenizer.encode(text)
    length = options.prompt_tokens + options.tokens
    if len(ids) < length:
        raise UsageError(f"quality.agreement.prompt_tokens: the text has only {len(ids)} tokens.")
    starts = (Stream(seed, "agreement", i).below(len(ids) - length + 1) for i in range(options.prompts))
    return [ids[start : start + length] for start in starts]


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


def next_tokens(
    pieces: Sequence[Sequence[int]],
    judged: int,
    distributions: Distributions,
    on_piece: Callable[[int, int], None] = lambda done, of: None,
) -> "pd.DataFrame":
    """What is known of the distributions at the last `judged` positions of each piece (schema.NEXT_TOKEN_COLUMNS)."""
    import pandas as pd

    rows = []
    for number, piece in enumerate(pieces):
        on_piece(number, len(pieces))
        for position, known in enumerate(distributions(piece)[len(piece) - judged : len(piece)]):
            rows += [(number, position, token, value) for token, value in known.items()]
    on_piece(len(pieces), len(pieces))
    return pd.DataFrame(rows, columns=["prompt", "position", "token", "log_prob"])
