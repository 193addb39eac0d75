"""The length planner: prompts that have exactly N tokens once rendered and encoded as a whole.

Tokens do not add up: what two texts encode to apart and joined can differ where they meet. So the filler is
cut where its own tokens end, the whole prompt is encoded, and the cut is moved by what is missing or too much
until the count is right; where the text leaves no such cut (a character of several tokens, a run of spaces),
the shorter cut is taken and single-token words make up the rest.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from harness.core.errors import HarnessError
from harness.core.tokenizer import Message, Tokenizer

Build = Callable[[str], Sequence[Message]]
ReadText = Callable[[int], str]

_READ_ATTEMPTS = 6
_CUT_ATTEMPTS = 6
_PAD_ATTEMPTS = 12
# Words that are one token in every vocabulary met so far; the loop corrects where they are not.
_PADS = (" and", " the", " of", " to", " in", " a", ".")
_CHARACTERS_PER_TOKEN = 5


class PromptTooShort(Exception):
    """No prompt of the wanted length exists: template and fixed parts alone have `smallest` tokens."""

    def __init__(self, smallest: int) -> None:
        super().__init__(smallest)
        self.smallest = smallest


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt as messages, as the rendered text, and as that text's ids."""

    messages: tuple[Message, ...]
    text: str
    ids: tuple[int, ...]


def render(tokenizer: Tokenizer, messages: Sequence[Message], ready_for_answer: bool = True) -> Prompt:
    """The prompt of these messages by the model's chat template."""
    text = tokenizer.render_chat(messages, add_generation_prompt=ready_for_answer)
    return Prompt(tuple(messages), text, tuple(tokenizer.encode(text)))


def fit(
    tokenizer: Tokenizer,
    build: Build,
    read: ReadText,
    target: int | None = None,
    *,
    extra: int = 0,
    ready_for_answer: bool = True,
) -> Prompt:
    """Messages `build(filler)` that render to exactly `target` tokens.

    read(n) gives n characters of the text the filler is cut from, always from the same place. Without
    `target` the wanted length is that of an empty filler plus `extra` tokens. Raises PromptTooShort.
    """

    def attempt(filler: str) -> Prompt:
        return render(tokenizer, build(filler), ready_for_answer)

    empty = attempt("")
    if target is None:
        target = len(empty.ids) + extra
    needed = target - len(empty.ids)
    if needed < 0:
        raise PromptTooShort(len(empty.ids))
    if needed == 0:
        return empty
    text, ends = _token_ends(tokenizer, read, needed)

    below, below_filler = empty, ""
    cut = needed
    for _ in range(_CUT_ATTEMPTS if ends else 0):
        filler = text[: ends[min(cut, len(ends)) - 1]].rstrip()
        prompt = attempt(filler)
        missing = target - len(prompt.ids)
        if missing == 0:
            return prompt
        if missing > 0 and len(prompt.ids) > len(below.ids):
            below, below_filler = prompt, filler
        cut = max(1, cut + missing)
    return _pad(attempt, below_filler, target - len(below.ids), target)


def _token_ends(tokenizer: Tokenizer, read: ReadText, needed: int) -> tuple[str, list[int]]:
    """Text of more than `needed` tokens, and where in it each token ends (as a character position).

    Fewer where the text has next to none: characters a vocabulary lacks encode to nothing.
    """
    characters = needed * _CHARACTERS_PER_TOKEN + 80
    for _ in range(_READ_ATTEMPTS):
        text = read(characters).lstrip()
        offsets = tokenizer.encode_with_offsets(text)[1]
        if len(offsets) > needed + 8:
            break
        characters *= 2
    return text, [end for _, end in offsets]


def _pad(attempt: Callable[[str], Prompt], filler: str, missing: int, target: int) -> Prompt:
    for first in range(len(_PADS)):
        words = missing
        for _ in range(_PAD_ATTEMPTS):
            pad = "".join(_PADS[(first + i) % len(_PADS)] for i in range(words))
            prompt = attempt(filler + pad if filler else pad.lstrip())
            error = target - len(prompt.ids)
            if error == 0:
                return prompt
            words += error
            if words <= 0:
                break
    raise HarnessError(
        f"No prompt of exactly {target} tokens was found in this text. Use a length a few tokens "
        "longer or shorter."
    )
