"""One request in the engine: its tokens, where it stands, and what it will need."""

from backends.kvcompress.spec import KvSpec
from backends.serving.engine import Sampling
from backends.serving.writing import Writing


class Request:
    """From its arrival to its end, through any number of preemptions.

    tokens: the prompt and what was generated so far. row: of the store while it runs. cached: how many of its
    tokens were computed into the row. reading: how many of them are read in chunks before it decodes: its prompt,
    and after a preemption all that it had. asked: its KV setting; spec: what it is held under now, which a dynamic
    scheduler changes. kind: its workload class, if it named one. breadth: of its prompt's attention, once
    measured (`RequestAttention.breadth`).
    """

    def __init__(
        self, ids: list[int], sampling: Sampling, spec: KvSpec, writing: Writing, kind: str | None = None
    ) -> None:
        self.prompt = len(ids)
        self.tokens = list(ids)
        self.sampling = sampling
        self.asked = spec
        self.spec = spec
        self.writing = writing
        self.kind = kind
        self.breadth: float | None = None
        self.row: int | None = None
        self.cached = 0
        self.reading = len(ids)
        self.scored = 0  # tokens of the prompt whose logits were read

    @property
    def decodes(self) -> bool:
        """Whether the next pass computes one token of it, and not a chunk."""
        return self.cached >= self.reading

    @property
    def most_tokens(self) -> int:
        """Most tokens it will ever have."""
        return self.prompt + self.sampling.max_tokens

    def expected_tokens(self, headroom: int) -> int:
        """Tokens that it is taken to have in any case: all where no end token can end it earlier, else so many more
        than it has, and one at least."""
        wanted = self.sampling
        sure = wanted.max_tokens if wanted.ignore_eos else wanted.min_tokens
        return min(self.most_tokens, max(self.prompt + sure, len(self.tokens) + max(1, headroom)))

    def scored_of(self, chunk: int) -> range:
        """Of its next `chunk` tokens, those whose logits tell the log-probability of the prompt's token after them.

        After a preemption those that were told already are left out.
        """
        if not self.sampling.prompt_logprobs:
            return range(0)
        end = min(self.cached + chunk, self.prompt - 1)
        return range(max(self.cached, self.scored) - self.cached, max(0, end - self.cached))

    def opened(self, row: int) -> None:
        """It runs, from its first token on."""
        self.row = row
        self.cached = 0
        self.reading = len(self.tokens)

    def closed(self) -> None:
        """It waits again; what it was computed to is gone."""
        self.spec = self.asked
        self.row = None
        self.cached = 0
