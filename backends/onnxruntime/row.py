"""One request as ONNX Runtime's engines run it: what is fed next, and what its logits become."""

import numpy as np
import numpy.typing as npt

from backends.serving.engine import EngineConfig, RequestOutput, Sampling
from backends.serving.writing import Writing


class Row:
    """A request in the pool.

    length: its tokens in the cache. feed: the token to compute next, once the prompt but its last token is there.
    """

    def __init__(self, request_id: int, ids: list[int], sampling: Sampling, config: EngineConfig) -> None:
        self.request_id = request_id
        self.ids = ids
        self.sampling = sampling
        self.length = 0
        self.feed = ids[-1]
        self._writing = Writing(request_id, sampling, config.eos_ids)

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
            self._writing.read(logits, self.ids[start + 1 : self.length + 1])

    def told(self) -> RequestOutput:
        """The whole output of a request for the prompt's log-probabilities alone."""
        return self._writing.told()

    def take(self, logits: npt.NDArray[np.float32]) -> RequestOutput:
        """Choose the next token by the logits [vocabulary] that `feed` gave."""
        output = self._writing.take(logits)
        self.length += 1
        (self.feed,) = output.token_ids
        return output
