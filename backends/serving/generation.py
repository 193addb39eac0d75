"""One answer as it grows: the engine's tokens turned into pieces of text, with stop strings applied."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass

from tokenizers import Tokenizer as FastTokenizer

from backends.serving.bodies import Call, Refusal
from backends.serving.engine import Alternatives, Sampling
from backends.serving.link import EngineGone, EngineLink
from backends.serving.text import TextStream


@dataclass(frozen=True, slots=True)
class Piece:
    """One generated token (token_id None: the end of an answer that has none, as with max_tokens=0).

    text: may be "". finish: on the last piece. prompt_logprobs, prompt_alternatives: on the first, where asked for.
    """

    token_id: int | None
    text: str
    logprob: float | None = None
    finish: str | None = None
    prompt_logprobs: tuple[float | None, ...] | None = None
    alternatives: Alternatives | None = None
    prompt_alternatives: tuple[Alternatives | None, ...] | None = None


async def generate(
    link: EngineLink, tokenizer: FastTokenizer, call: Call, ids: list[int], sampling: Sampling
) -> AsyncGenerator[Piece]:
    """Pieces of the answer, one a token; the request is cancelled when the iteration is given up.

    Raises EngineGone where the engine dies, Refusal where it cannot serve this request.
    """
    if sampling.max_tokens == 0 and not sampling.prompt_logprobs:  # echo alone: nothing to compute
        yield Piece(None, "", finish="length")
        return
    request_id, queue = link.submit(ids, sampling)
    text = TextStream(tokenizer, call.stops, sampling.min_tokens)
    try:
        while True:
            output = await queue.get()
            if isinstance(output, EngineGone):
                raise output
            if output.error is not None:
                raise Refusal(output.error, status=400)
            prompt_logprobs, prompt_alternatives = output.prompt_logprobs, output.prompt_alternatives
            for position, token_id in enumerate(output.token_ids):
                piece = text.push(token_id)
                logprob = output.logprobs[position] if output.logprobs is not None else None
                others = output.alternatives[position] if output.alternatives is not None else None
                finish = output.finish if position == len(output.token_ids) - 1 else None
                if finish is not None:
                    piece += text.finish()
                if text.stopped:
                    finish = "stop"
                yield Piece(token_id, piece, logprob, finish, prompt_logprobs, others, prompt_alternatives)
                prompt_logprobs = prompt_alternatives = None
                if finish is not None:
                    return
            if output.finish is not None:
                yield Piece(
                    None,
                    text.finish(),
                    None,
                    output.finish,
                    prompt_logprobs,
                    prompt_alternatives=prompt_alternatives,
                )
                return
    finally:
        link.cancel(request_id)
