"""One way to schedule, on a clock of its own: the CPU seconds that its engine has computed.

Arms that take turns, a step each, are disturbed alike by whatever else the machine does.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from backends.kvcompress.engine import KvCompressEngine
from backends.serving.engine import RequestOutput, Sampling
from backends.serving.sampling import Logits, log_probabilities
from backends.serving.writing import Writing
from benchmarks.kv.mixed import Asked
from harness.core.metric_names import PREEMPTIONS, REQUESTS_RUNNING

_FIRST = -1  # the request that nobody counts


class Forced(Writing):
    """Takes the tokens of a given answer instead of choosing, so that what a cache lost shows in their probability.

    answers: by request.
    """

    def __init__(
        self,
        answers: Mapping[int, Sequence[int]],
        request_id: int,
        sampling: Sampling,
        eos_ids: Sequence[int],
    ) -> None:
        super().__init__(request_id, sampling, eos_ids)
        self._answer = answers[request_id] if request_id != _FIRST else [0] * sampling.max_tokens

    def take(self, logits: Logits) -> RequestOutput:
        """See `Writing`; the token's log-probability comes with it."""
        token = self._answer[self.generated]
        self.generated += 1
        finish = "length" if self.generated == len(self._answer) else None
        told = tuple(log_probabilities(logits[None], [token]))
        return RequestOutput(self.request_id, token_ids=(token,), logprobs=told, finish=finish)


@dataclass
class Arm:
    """clock: seconds. sent: how many have arrived. at_once: most requests that ran in one step. running_seconds:
    running requests, integrated over the clock. By request: first, when its first token came; tokens of its answer,
    and their logprobs.
    """

    name: str
    engine: KvCompressEngine
    load: Sequence[Asked]
    clock: float = 0.0
    sent: int = 0
    at_once: int = 0
    running_seconds: float = 0.0
    first: dict[int, float] = field(default_factory=dict)
    tokens: dict[int, list[int]] = field(default_factory=dict)
    logprobs: dict[int, list[float]] = field(default_factory=dict)

    def warm_up(self) -> None:
        """One request off the clock: kernels are compiled and retrieval heads found when they are first used."""
        self._add(_FIRST, replace(self.load[0], tokens=2))
        while self.engine.has_work():
            self.engine.step()

    def going(self) -> bool:
        """Whether there is anything left to do."""
        return self.sent < len(self.load) or self.engine.has_work()

    def step(self) -> None:
        """Take who has arrived, compute once."""
        if not self.engine.has_work() and self.load[self.sent].arrival > self.clock:
            self.clock = self.load[self.sent].arrival
        while self.sent < len(self.load) and self.load[self.sent].arrival <= self.clock:
            self._send(self.sent)
        started = time.process_time()
        outputs = self.engine.step()
        seconds = time.process_time() - started
        gauges = self.engine.gauges()
        running = len({output.request_id for output in outputs if output.finish}) + int(
            gauges[REQUESTS_RUNNING]
        )
        self.clock += seconds
        self.running_seconds += running * seconds
        self.at_once = max(self.at_once, running)
        for output in outputs:
            if output.error is not None:
                raise RuntimeError(output.error)
            self.first.setdefault(output.request_id, self.clock)
            self.tokens.setdefault(output.request_id, []).extend(output.token_ids)
            self.logprobs.setdefault(output.request_id, []).extend(output.logprobs or ())

    def waits(self) -> list[float]:
        """Seconds from arrival to the first token, of each request (TTFT)."""
        return [self.first[number] - one.arrival for number, one in enumerate(self.load)]

    def tokens_per_second(self) -> float:
        """Of answers."""
        return sum(map(len, self.logprobs.values())) / self.clock

    def preemptions(self) -> int:
        """So far."""
        return int(self.engine.gauges()[PREEMPTIONS])

    def _send(self, number: int) -> None:
        self._add(number, self.load[number])
        self.sent += 1

    def _add(self, number: int, asked: Asked) -> None:
        kind = {"class": asked.kind}
        sampling = Sampling(
            max_tokens=asked.tokens,
            min_tokens=asked.tokens,
            ignore_eos=True,
            temperature=0.0,
            top_p=1.0,
            seed=0,
            logprobs=True,
            prompt_logprobs=False,
            kv=kind,
        )
        self.engine.add(number, list(asked.prompt), sampling)
