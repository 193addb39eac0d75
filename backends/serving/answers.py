"""The JSON shapes of the OpenAI API's answers, whole and streamed."""

import time
from collections.abc import Sequence
from typing import Any

import orjson
from tokenizers import Tokenizer as FastTokenizer
from tokenizers.decoders import DecodeStream

from backends.serving.bodies import Call
from backends.serving.engine import Alternatives
from backends.serving.generation import Piece


class Answer:
    """What is common to every chunk of one answer, and the running count of its tokens."""

    def __init__(
        self, answer_id: str, model_name: str, call: Call, prompt_ids: list[int], tokenizer: FastTokenizer
    ):
        self._call = call
        self._prompt_ids = prompt_ids
        self._tokenizer = tokenizer
        self._tokens = 0
        self._length = 0  # characters so far, for text offsets
        prefix, kind = ("chatcmpl-", "chat.completion") if call.chat else ("cmpl-", "text_completion")
        self._head: dict[str, Any] = {
            "id": prefix + answer_id,
            "object": kind + (".chunk" if call.chat and call.stream else ""),
            "created": int(time.time()),
            "model": model_name,
        }

    def usage(self) -> dict[str, int]:
        """Tokens so far."""
        prompt = len(self._prompt_ids)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": self._tokens,
            "total_tokens": prompt + self._tokens,
        }

    def chunk(self, piece: Piece) -> bytes:
        """The stream event of one piece."""
        first = self._tokens == 0
        choice = self._choice([piece])
        if self._call.chat:
            content = {"content": choice.pop("text")}
            choice["delta"] = {"role": "assistant", **content} if first else content
        return event({**self._head, "choices": [choice]})

    def usage_chunk(self) -> bytes:
        """The last event before [DONE], where usage was asked for."""
        return event({**self._head, "choices": [], "usage": self.usage()})

    def whole(self, pieces: Sequence[Piece]) -> dict[str, Any]:
        """The answer that is not streamed."""
        choice = self._choice(pieces)
        if self._call.chat:
            choice["message"] = {"role": "assistant", "content": choice.pop("text")}
        return {**self._head, "choices": [choice], "usage": self.usage()}

    def _choice(self, pieces: Sequence[Piece]) -> dict[str, Any]:
        echoed = self._call.echo and self._tokens == 0 and self._length == 0
        ids = [piece.token_id for piece in pieces if piece.token_id is not None]
        texts = [piece.text for piece in pieces if piece.token_id is not None]
        echo_texts = self._prompt_texts() if echoed else []
        choice: dict[str, Any] = {
            "index": 0,
            "text": "".join([*echo_texts, *(piece.text for piece in pieces)]),
        }
        if self._call.logprobs:
            values: list[float | None] = [piece.logprob for piece in pieces if piece.token_id is not None]
            others = [piece.alternatives for piece in pieces if piece.token_id is not None]
            if echoed:
                values = [*(pieces[0].prompt_logprobs or ()), *values]
                others = [*(pieces[0].prompt_alternatives or ()), *others]
            all_ids = [*(self._prompt_ids if echoed else ()), *ids]
            choice["logprobs"] = self._logprobs(all_ids, [*echo_texts, *texts], values, others)
        elif not self._call.chat:
            choice["logprobs"] = None
        choice["finish_reason"] = pieces[-1].finish if pieces else None
        if self._call.return_token_ids:
            choice["token_ids"] = ids
        self._tokens += len(ids)
        self._length += len(choice["text"])
        return choice

    def _prompt_texts(self) -> list[str]:
        """The prompt's text, the share of each of its tokens."""
        stream = DecodeStream(skip_special_tokens=False)
        texts = [stream.step(self._tokenizer, token) or "" for token in self._prompt_ids]
        told = sum(map(len, texts))
        texts[-1] += self._tokenizer.decode(self._prompt_ids, skip_special_tokens=False)[told:]
        return texts

    def _logprobs(
        self,
        ids: list[int],
        texts: list[str],
        values: list[float | None],
        others: list[Alternatives | None],
    ) -> dict[str, Any]:
        offsets, position = [], self._length
        for text in texts:
            offsets.append(position)
            position += len(text)
        return {
            "tokens": [self._named(token) for token in ids],
            "token_logprobs": values,
            "top_logprobs": [
                None if found is None else {self._named(token): value for token, value in found}
                for found in others
            ]
            if self._call.alternatives
            else None,
            "text_offset": offsets,
        }

    def _named(self, token: int) -> str:
        if self._call.tokens_as_ids:
            return f"token_id:{token}"
        return str(self._tokenizer.decode([token], skip_special_tokens=False))


def event(content: dict[str, Any]) -> bytes:
    """One server-sent event."""
    return b"data: " + orjson.dumps(content) + b"\n\n"


DONE = b"data: [DONE]\n\n"
