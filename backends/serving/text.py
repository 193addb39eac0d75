"""Token ids to text, one token at a time: no character is ever split, and stop strings may span tokens."""

from collections.abc import Sequence

from tokenizers import Tokenizer as FastTokenizer
from tokenizers.decoders import DecodeStream


class TextStream:
    """The growing text of one answer.

    The pieces that `push` and `finish` return add up to `decode(ids, skip_special_tokens=True)`, cut before
    the first stop string. A piece is "" while a character is incomplete, or while the text may yet become a
    stop string.
    stops: strings that end the answer; not looked for in the text of the first `min_tokens` tokens.
    """

    def __init__(self, tokenizer: FastTokenizer, stops: Sequence[str] = (), min_tokens: int = 0) -> None:
        self._tokenizer = tokenizer
        self._stream = DecodeStream(skip_special_tokens=True)
        self._stops = tuple(stops)
        self._min_tokens = min_tokens
        self._ids: list[int] = []
        self._decoded = 0  # characters that came out of the decoder so far
        self._held = ""  # decoded, but perhaps the beginning of a stop string
        self.stopped = False

    def push(self, token_id: int) -> str:
        """Add a token; the text that is certain now. Sets `stopped` when a stop string is complete."""
        self._ids.append(token_id)
        piece = self._stream.step(self._tokenizer, token_id) or ""
        self._decoded += len(piece)
        return self._certain(piece)

    def finish(self) -> str:
        """The text still held back: bytes that became no character (as U+FFFD), a stop string's beginning."""
        if self.stopped:
            return ""
        rest = self._tokenizer.decode(self._ids, skip_special_tokens=True)[self._decoded :]
        self._decoded += len(rest)
        certain = self._certain(rest)
        if self.stopped:
            return certain
        certain, self._held = certain + self._held, ""
        return certain

    def _certain(self, piece: str) -> str:
        if not self._stops or len(self._ids) < self._min_tokens:
            return piece
        text = self._held + piece
        found = [position for stop in self._stops if (position := text.find(stop)) >= 0]
        if found:
            self.stopped, self._held = True, ""
            return text[: min(found)]
        keep = max(_overlap(text, stop) for stop in self._stops)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that is a beginning of `stop`."""
    return next(
        (size for size in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:size])), 0
    )
