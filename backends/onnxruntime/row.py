"""One request as ONNX Runtime's engines run it: what is fed next, and what its logits become."""

import numpy as np
import numpy.typing as npt

from backends.onnxruntime.sampling import Sampler, log_probabilities
from backends.serving.engine import EngineConfig, RequestOutput, Sampling


class Row:
    """A request in the pool.

    length: its tokens in the cache. feed: the token to compute next, once the prompt but its last token is there.
    """

    def __init__(self, request_id: int, ids: list[int], sampling: Sampling, config: EngineConfig) -> None:
        self.request_id = request_id
        self.ids = ids
        self.sampling = sampling
        self.sampler = Sampler(sampling, config.eos_ids)
        self.length = 0
        self.feed = ids[-1]
        self.generated = 0
        self.prompt_logprobs: list[float | None] = [None]
        self._eos_ids = config.eos_ids

    @property
    def prompt_left(self) -> int:
        """Tokens of the prompt to feed before the last one, which is computed with the answer's."""
        return max(0, len(self.ids) - 1 - self.length)

    @property
    def need(self) -> int:
        """Most tokens it will ever hold."""
        return len(self.ids) + self.sampling.max_tokens

    def read(self, chunk: int, logits: npt.NDArray[np.float32] | None) -> None:
        """The next `chunk` tokens of the prompt are in the cache; logits [chunk, vocabulary] where asked for."""
        start = self.length
        self.length += chunk
        if logits is not None:
            self.prompt_logprobs += log_probabilities(logits, self.ids[start + 1 : self.length + 1])

    def told(self) -> RequestOutput:
        """The whole output of a request for the prompt's log-probabilities alone."""
        return RequestOutput(self.request_id, prompt_logprobs=tuple(self.prompt_logprobs), finish="length")

    def take(self, logits: npt.NDArray[np.float32]) -> RequestOutput:
        """Choose the next token by the logits [vocabulary] that `feed` gave."""
        token = self.sampler.choose(logits, self.generated)
        first = self.generated == 0
        self.length += 1
        self.generated += 1
        self.feed = token
        finish = "length" if self.generated == self.sampling.max_tokens else None
        if token in self._eos_ids and not self.sampling.ignore_eos:
            finish = "stop"
        wanted = self.sampling
        return RequestOutput(
            self.request_id,
            token_ids=(token,),
            logprobs=tuple(log_probabilities(logits[None], [token])) if wanted.logprobs else None,
            prompt_logprobs=tuple(self.prompt_logprobs) if first and wanted.prompt_logprobs else None,
            finish=finish,
        )
