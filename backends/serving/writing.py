"""One answer as it is written, for engines that compute logits and leave the rest to their caller."""

from collections.abc import Sequence

from backends.serving.engine import RequestOutput, Sampling
from backends.serving.sampling import Logits, Sampler, log_probabilities


class Writing:
    """What a request's logits become: tokens, log-probabilities, and the reason for its end.

    generated: tokens so far.
    """

    def __init__(self, request_id: int, sampling: Sampling, eos_ids: Sequence[int]) -> None:
        self.request_id = request_id
        self.sampling = sampling
        self.generated = 0
        self._sampler = Sampler(sampling, eos_ids)
        self._eos_ids = eos_ids
        self._prompt_logprobs: list[float | None] = [None]

    def read(self, logits: Logits, following: Sequence[int]) -> None:
        """Logits [n, vocabulary] of n tokens of the prompt, and the tokens that follow each of them in it."""
        self._prompt_logprobs += log_probabilities(logits, following)

    def told(self) -> RequestOutput:
        """The whole output of a request for the prompt's log-probabilities alone."""
        return RequestOutput(self.request_id, prompt_logprobs=tuple(self._prompt_logprobs), finish="length")

    def take(self, logits: Logits) -> RequestOutput:
        """Choose the next token by the logits [vocabulary] of the one before it."""
        token = self._sampler.choose(logits, self.generated)
        first = self.generated == 0
        self.generated += 1
        wanted = self.sampling
        finish = "length" if self.generated == wanted.max_tokens else None
        if token in self._eos_ids and not wanted.ignore_eos:
            finish = "stop"
        return RequestOutput(
            self.request_id,
            token_ids=(token,),
            logprobs=tuple(log_probabilities(logits[None], [token])) if wanted.logprobs else None,
            prompt_logprobs=tuple(self._prompt_logprobs) if first and wanted.prompt_logprobs else None,
            finish=finish,
        )
