"""One answer as it is written, for engines that compute logits and leave the rest to their caller."""

from collections.abc import Sequence

from backends.serving.engine import Alternatives, RequestOutput, Sampling
from backends.serving.sampling import Logits, Sampler, log_probabilities, most_probable


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
        self._prompt_alternatives: list[Alternatives | None] = [None]

    def read(self, logits: Logits, following: Sequence[int]) -> None:
        """Logits [n, vocabulary] of n tokens of the prompt, and the tokens that follow each of them in it."""
        self._prompt_logprobs += log_probabilities(logits, following)
        if self.sampling.alternatives:
            self._prompt_alternatives += most_probable(logits, self.sampling.alternatives)

    def told(self) -> RequestOutput:
        """The whole output of a request for the prompt's log-probabilities alone."""
        return RequestOutput(
            self.request_id,
            prompt_logprobs=tuple(self._prompt_logprobs),
            finish="length",
            prompt_alternatives=self._told_alternatives(),
        )

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
            alternatives=tuple(most_probable(logits[None], wanted.alternatives))
            if wanted.alternatives
            else None,
            prompt_alternatives=self._told_alternatives() if first and wanted.prompt_logprobs else None,
        )

    def _told_alternatives(self) -> tuple[Alternatives | None, ...] | None:
        return tuple(self._prompt_alternatives) if self.sampling.alternatives else None
