"""Continuous batching in one forward pass a step: a chunk of one prompt, and one token of each that decodes.

The weights are read once for all of them. A request joins at the next step; `scheduler` says which may.
"""

from collections.abc import Callable

import torch

from backends.kvcompress.contracts import KvStore, Model, Pass, RequestAttention
from backends.kvcompress.request import Request
from backends.kvcompress.requested import asked
from backends.kvcompress.scheduler import Scheduler, Work
from backends.kvcompress.scheduling import Scheduling
from backends.kvcompress.spec import KvSpec
from backends.serving.engine import EngineConfig, RequestOutput, Sampling
from backends.serving.sampling import Logits
from backends.serving.writing import Writing
from harness.core.errors import UsageError
from harness.core.metric_names import (
    KV_RESERVED_BYTES,
    KV_USED_BYTES,
    PREEMPTIONS,
    REQUESTS_RUNNING,
    WEIGHTS_BYTES,
)

_SCORED_AT_ONCE = 64  # rows of logits whose log-probabilities are taken at once, in float64


class KvCompressEngine:
    """See `backends.serving.engine.Engine`. default: the KV setting of requests that bring none of their own.
    scheduling: what their classes are called. writing: what answers are made of logits by. store: of all requests.
    """

    def __init__(
        self,
        config: EngineConfig,
        default: KvSpec,
        model: Model,
        store: KvStore,
        attention: RequestAttention,
        scheduler: Scheduler,
        vocabulary: int,
        weights_bytes: int,
        *,
        scheduling: Scheduling,
        writing: Callable[..., Writing] = Writing,
    ) -> None:
        self.capacity_tokens = config.context_length
        self._eos_ids = config.eos_ids
        self._device = torch.device(config.device.replace(".", ":"))
        self._default = default
        self._model = model
        self.store = store
        self._attention = attention
        self._scheduler = scheduler
        self._vocabulary = vocabulary
        self._weights_bytes = weights_bytes
        self._scheduling = scheduling
        self._writing = writing
        self._requests: dict[int, Request] = {}

    def add(self, request_id: int, ids: list[int], sampling: Sampling) -> None:
        """Queue a request; raises ValueError where its KV setting cannot be, it could never fit the pool, or the
        model has no such token."""
        if max(ids) >= self._vocabulary:  # a tokenizer may have added tokens that the weights lack
            raise ValueError(f"Token {max(ids)} is beyond the model's vocabulary of {self._vocabulary}.")
        try:
            spec, kind = asked(self._default, sampling.kv or {}, self._scheduling)
            self._attention.close(
                self._attention.open(spec, len(ids))
            )  # whether it can be held; takes no page
        except UsageError as error:
            raise ValueError(str(error)) from error
        request = Request(ids, sampling, spec, self._writing(request_id, sampling, self._eos_ids), kind)
        self._scheduler.add(request)
        self._requests[request_id] = request

    def cancel(self, request_id: int) -> None:
        """Forget it; its pages are free at once."""
        request = self._requests.pop(request_id, None)
        if request is not None:
            self._scheduler.cancel(request)

    def has_work(self) -> bool:
        """Whether anybody waits or runs."""
        return self._scheduler.has_work()

    def step(self) -> list[RequestOutput]:
        """One forward pass; who decodes, and whose prompt ends, gets a token."""
        work = self._scheduler.next()
        takers, told = work.takers(), []
        scored = range(0) if work.reading is None else work.reading.scored_of(work.chunk)
        logits = self._compute(work, scored)
        if work.reading is not None:
            self._score(work.reading, scored, logits[: len(scored)])
            if work.ends_prompt and work.reading not in takers:
                told.append(self._after(work.reading, work.reading.writing.told()))
        for request, new in work.computed():
            request.cached += new
        chosen = logits[len(scored) :]
        return told + [
            self._after(one, one.writing.take(row)) for one, row in zip(takers, chosen, strict=True)
        ]

    def gauges(self) -> dict[str, float]:
        """What the rows hold, slack and tables included, and the pool."""
        return {
            REQUESTS_RUNNING: len(self._scheduler.running),
            KV_USED_BYTES: self.store.used_bytes(),
            KV_RESERVED_BYTES: self.store.pages * self.store.page_bytes,
            WEIGHTS_BYTES: self._weights_bytes,
            PREEMPTIONS: self._scheduler.preemptions,
        }

    def close(self) -> None:
        """Drop the model and the pool."""
        self._requests.clear()
        del self._model, self._attention, self._scheduler, self.store

    def _compute(self, work: Work, scored: range) -> Logits:
        """Logits [n, vocabulary] of the chunk's tokens in `scored`, then of those that give somebody a token."""
        ids: list[int] = []
        positions: list[int] = []
        rows: list[int] = []
        for request, new in work.computed():
            assert request.row is not None
            seen = range(request.cached, request.cached + new)
            ids += request.tokens[seen.start : seen.stop]
            positions += seen
            rows += [request.row] * new
        places = self._tensor(positions)
        self._attention.begin(
            Pass(self._tensor(rows, torch.int32), places, work.chunk, ends_prompt=work.ends_prompt)
        )
        wanted = self._tensor([*scored, *range(len(ids) - len(work.takers()), len(ids))])
        hidden = self._model.forward(self._tensor(ids), places, self._attention, wanted)
        logits: Logits = self._model.logits(hidden).float().cpu().numpy()
        return logits

    def _tensor(self, values: list[int], dtype: torch.dtype = torch.int64) -> torch.Tensor:
        return torch.tensor(values, dtype=dtype, device=self._device)

    def _score(self, request: Request, scored: range, logits: Logits) -> None:
        for start in range(0, len(scored), _SCORED_AT_ONCE):
            part = logits[start : start + _SCORED_AT_ONCE]
            first = request.cached + scored.start + start
            request.writing.read(part, request.tokens[first + 1 : first + 1 + len(part)])
        if scored:
            request.scored = request.cached + scored.stop

    def _after(self, request: Request, output: RequestOutput) -> RequestOutput:
        request.tokens += output.token_ids
        if output.finish is not None:
            del self._requests[output.request_id]
            self._scheduler.close(request)
        return output
