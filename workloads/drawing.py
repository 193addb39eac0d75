"""What every workload draws from, and the few things all of them do the same way."""

from dataclasses import dataclass
from typing import Any

from harness.core.errors import UsageError
from harness.core.tokenizer import Message, Tokenizer
from workloads.corpus import Corpus
from workloads.fit import Prompt
from workloads.lengths import OutputLength
from workloads.pool import TextPool
from workloads.streams import Stream


@dataclass(frozen=True, slots=True)
class Drawing:
    """What a plan is drawn from: one seed, one tokenizer, a corpus in two parts that share no text.

    context_length: most tokens a request may come to hold; it bounds answers that are free without a maximum.
    """

    tokenizer: Tokenizer
    seed: int
    warmup: int
    context_length: int
    corpus: Corpus
    measured: TextPool
    reserve: TextPool

    def stream(self, *names: str | int) -> Stream:
        """The random stream of one purpose."""
        return Stream(self.seed, *names)

    def output(self, length: OutputLength, stream: Stream, prompt: Prompt) -> tuple[int | None, int]:
        """(output_tokens, max_output_tokens) of a planned request."""
        if length.fixed is not None:
            tokens = length.fixed.draw_int(stream)
            return tokens, tokens
        return None, length.maximum or max(1, self.context_length - len(prompt.ids))


def system_message(text: str | None) -> list[Message]:
    """The system message all requests share, or nothing."""
    return [{"role": "system", "content": text}] if text else []


def check_count(key: str, value: Any, least: int = 1) -> int:
    """A whole number of at least `least`. Raises UsageError that names `key`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise UsageError(f"{key}={value}: use a whole number of at least {least}.")
    return value


def too_short(wanted: int, smallest: int) -> UsageError:
    """What to say where template and fixed parts alone are longer than the prompt may be."""
    return UsageError(
        f"workload.prompt_tokens={wanted} is too short: the chat template and the fixed parts of "
        f"the prompt already take {smallest} tokens. Use at least workload.prompt_tokens={smallest}."
    )


def token_depth(tokenizer: Tokenizer, prompt: Prompt, needle: str) -> float:
    """Where `needle` begins in the prompt, as a share of its tokens (0: the beginning)."""
    before = prompt.text.index(needle)
    return round(len(tokenizer.encode(prompt.text[:before])) / len(prompt.ids), 4)
