"""Continuous batching over one bound ONNX Runtime session, behind the `Engine` protocol.

Of two steps a request may decode in both: each step feeds at most `prefill_chunk` tokens of prompts, a row at a time,
then one token to every row whose prompt is in the cache, all in one batch. A request that arrives joins at the next
step. Rows that decode are kept before those that do not, since a batch is a run of neighbouring rows.
"""

import numpy as np

from backends.onnxruntime.row import Row
from backends.onnxruntime.session import BoundModel
from backends.serving.engine import Engine, EngineConfig, RequestOutput, Sampling
from harness.core.metric_names import KV_RESERVED_BYTES, KV_USED_BYTES, REQUESTS_RUNNING

_ROUND = (
    64  # rows are this much longer than asked for at most, so that they need not be laid out anew so often
)


def load(config: EngineConfig) -> Engine:
    """Load the exported model; on a CPU `config.kv_bytes` are set aside for its KV cache at once.

    CUDA is onnxruntime-genai's own: its generators keep keys and values where the GPU computes.
    """
    if config.device.split(".")[0] == "cuda":
        from backends.onnxruntime.genai_engine import GenaiEngine

        return GenaiEngine(config, "cuda")
    return OnnxRuntimeEngine(BoundModel(config), config)


class OnnxRuntimeEngine:
    """See `backends.serving.engine.Engine`; requests wait in order until a row of their size fits the pool."""

    def __init__(self, model: BoundModel, config: EngineConfig) -> None:
        self.capacity_tokens = model.pool.capacity
        self._model = model
        self._pool = model.pool
        self._config = config
        self._queue: dict[int, Row] = {}
        self._rows: list[Row] = []  # by their place in the pool; the first `_decoding` of them decode
        self._decoding = 0

    def add(self, request_id: int, ids: list[int], sampling: Sampling) -> None:
        """Queue a request."""
        self._queue[request_id] = Row(request_id, ids, sampling, self._config)

    def cancel(self, request_id: int) -> None:
        """Forget it; its row is free at once."""
        self._queue.pop(request_id, None)
        for place, row in enumerate(self._rows):
            if row.request_id == request_id:
                self._remove(place)
                return

    def has_work(self) -> bool:
        """Whether anybody waits or runs."""
        return bool(self._queue or self._rows)

    def step(self) -> list[RequestOutput]:
        """Admit, read a chunk of prompts, decode once."""
        self._admit()
        return self._read_prompts() + self._decode()

    def gauges(self) -> dict[str, float]:
        """What the rows hold; the buffers are as large as they were set aside."""
        return {
            REQUESTS_RUNNING: len(self._rows),
            KV_USED_BYTES: sum(row.length for row in self._rows) * self._pool.bytes_per_token,
            KV_RESERVED_BYTES: self._pool.reserved_bytes,
        }

    def close(self) -> None:
        """Drop the session and the pool."""
        self._queue.clear()
        self._rows.clear()
        del self._model, self._pool

    def _admit(self) -> None:
        while self._queue and len(self._rows) < self._config.max_running:
            request_id, candidate = next(iter(self._queue.items()))
            if not self._make_room(candidate.need):
                return
            del self._queue[request_id]
            self._rows.append(candidate)
            if candidate.prompt_left == 0 and candidate.sampling.max_tokens > 0:
                self._begin_decoding(len(self._rows) - 1)

    def _make_room(self, need: int) -> bool:
        """Lay the rows out so that one more of `need` tokens fits; False where it cannot."""
        rows = len(self._rows) + 1
        if self._rows and need <= self._pool.stride and self._pool.fits(rows, self._pool.stride):
            return True
        longest = max([need, *(row.need for row in self._rows)])
        if not self._pool.fits(rows, longest):
            return False
        rounded = -(-longest // _ROUND) * _ROUND
        stride = rounded if self._pool.fits(rows, rounded) else longest
        self._pool.lay_out(stride, [row.length for row in self._rows])
        return True

    def _read_prompts(self) -> list[RequestOutput]:
        outputs, budget = [], self._config.prefill_chunk
        for row in sorted(self._rows[self._decoding :], key=lambda row: row.request_id):  # oldest first
            while row.prompt_left and budget:
                chunk = min(budget, row.prompt_left)
                self._feed_prompt(row, chunk)
                budget -= chunk
            if row.prompt_left:
                break
            place = self._rows.index(row)
            if row.sampling.max_tokens == 0:
                self._remove(place)
                outputs.append(row.told())
            else:
                self._begin_decoding(place)
        return outputs

    def _feed_prompt(self, row: Row, chunk: int) -> None:
        place, start = self._rows.index(row), row.length
        ids = np.array([row.ids[start : start + chunk]], dtype=np.int64)
        logits = self._model.compute(place, ids, [start], row.sampling.prompt_logprobs)
        row.read(chunk, None if logits is None else logits[0])

    def _decode(self) -> list[RequestOutput]:
        batch = self._rows[: self._decoding]
        if not batch:
            return []
        ids = np.array([[row.feed] for row in batch], dtype=np.int64)
        logits = self._model.compute(0, ids, [row.length for row in batch], True)
        assert logits is not None
        outputs = [row.take(logits[place, 0]) for place, row in enumerate(batch)]
        for place in reversed(range(len(outputs))):
            if outputs[place].finish:
                self._remove(place)
        return outputs

    def _begin_decoding(self, place: int) -> None:
        """Put the row at the end of those that decode."""
        self._exchange(place, self._decoding)
        self._decoding += 1

    def _remove(self, place: int) -> None:
        """Free a row; the gap is closed by the last row of its kind, and that one's by the last of all."""
        if place < self._decoding:
            self._decoding -= 1
            self._fill(place, self._decoding)
            place = self._decoding
        self._fill(place, len(self._rows) - 1)
        self._rows.pop()

    def _fill(self, place: int, source: int) -> None:
        if place != source:
            self._pool.move(source, place, self._rows[source].length)
            self._rows[place] = self._rows[source]

    def _exchange(self, one: int, other: int) -> None:
        if one != other:
            rows = self._rows
            self._pool.exchange(one, other, max(rows[one].length, rows[other].length))
            rows[one], rows[other] = rows[other], rows[one]
