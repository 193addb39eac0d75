"""Who runs, and what the next pass computes, so that the pool is never exceeded.

A request is admitted, in order, where `admission` says so. What it comes to hold beyond that takes free pages;
where none are left, the request that came last gives up its own, waits in front of all others and is computed again
from its tokens, generated ones included.
"""

from dataclasses import dataclass

from backends.kvcompress.admission import Admission
from backends.kvcompress.contracts import KvStore, PoolFull, RequestAttention
from backends.kvcompress.needs import Needs
from backends.kvcompress.request import Request


@dataclass(frozen=True, slots=True)
class Work:
    """One pass: `chunk` tokens of the prompt of `reading` (None: no prompt), one token of each of `decoding`."""

    reading: Request | None
    chunk: int
    decoding: list[Request]

    @property
    def ends_prompt(self) -> bool:
        """Whether the chunk is its prompt's last."""
        return self.reading is not None and self.reading.cached + self.chunk == self.reading.reading

    def takers(self) -> list[Request]:
        """Who gets a token by this pass, in the order of the pass's last tokens."""
        told = self.reading is not None and self.ends_prompt and self.reading.sampling.max_tokens > 0
        return [self.reading, *self.decoding] if told and self.reading is not None else self.decoding

    def computed(self) -> list[tuple[Request, int]]:
        """Whose tokens are computed, and how many, in the order of the pass."""
        read = [] if self.reading is None else [(self.reading, self.chunk)]
        return [*read, *((request, 1) for request in self.decoding)]


class Scheduler:
    """Requests in order of arrival. chunk: most tokens of a prompt in a pass. preemptions: how many there were."""

    def __init__(
        self,
        store: KvStore,
        attention: RequestAttention,
        needs: Needs,
        admission: Admission,
        most_running: int,
        chunk: int,
    ) -> None:
        self._store = store
        self._attention = attention
        self._needs = needs
        self._admission = admission
        self._most_running = most_running
        self._chunk = chunk
        self._waiting: list[Request] = []
        self.running: list[Request] = []
        self.preemptions = 0
        self._unshared = False  # a prompt was read or somebody has gone since budgets were looked at
        self._no_room = (
            False  # for the first who waits, and nothing has changed since: asking costs milliseconds
        )

    def add(self, request: Request) -> None:
        """Queue it; raises ValueError where it would not fit alone."""
        most = self._needs.held(request.spec, request.prompt, request.most_tokens)
        most += self._needs.passing(request.spec, request.most_tokens)
        if most > self._store.pages:
            raise ValueError(
                f"{request.most_tokens} tokens of prompt and answer may take {most * self._store.page_bytes} bytes "
                f"of KV cache, and the pool has {self._store.pages * self._store.page_bytes}. Ask for fewer tokens, "
                "or for a smaller kv.budget."
            )
        self._waiting.append(request)

    def cancel(self, request: Request) -> None:
        """Forget it; what it held is free at once."""
        self._no_room = False
        if request.row is None:
            self._waiting.remove(request)
        else:
            self.close(request)

    def has_work(self) -> bool:
        """Whether anybody waits or runs."""
        return bool(self._waiting or self.running)

    def next(self) -> Work:
        """Admit whom there is room for, then choose; whoever must give way does so here."""
        self._admit()
        while True:
            work = self._choose()
            self._unshared |= work.ends_prompt
            shrinking = self._shrinking(work)
            if work.ends_prompt or shrinking.computed():
                self._no_room = False  # after this pass somebody may hold less
            if self._growth(work) <= self._store.free_pages():
                return work
            if shrinking.computed() and self._growth(shrinking) <= self._store.free_pages():
                return (
                    shrinking  # and the others follow once these have given up what is beyond their budgets
                )
            self._preempt()

    def _admit(self) -> None:
        while self._waiting and len(self.running) < self._most_running and not self._no_room:
            candidate = self._waiting[0]
            if not self._admission.admit(self.running, candidate) and self.running:
                self._no_room = True
                break  # those who run still share what there is
            self._waiting.pop(0)
            candidate.opened(self._attention.open(candidate.spec, candidate.prompt))
            self.running.append(candidate)
        if self._unshared and self.running:
            self._admission.share(self.running)
        self._unshared = False

    def _held(self, request: Request) -> int:
        assert request.row is not None
        return self._store.held_pages(request.row)

    def _choose(self) -> Work:
        reading = next((one for one in self.running if not one.decodes), None)
        chunk = 0 if reading is None else min(self._chunk, reading.reading - reading.cached)
        return Work(reading, chunk, [one for one in self.running if one.decodes])

    def _growth(self, work: Work) -> int:
        computed = work.computed()
        lasting = sum(
            self._needs.growth(one.spec, one.prompt, one.cached, new, self._held(one))
            for one, new in computed
        )
        return lasting + max((self._needs.passing(one.spec, new) for one, new in computed), default=0)

    def _shrinking(self, work: Work) -> Work:
        """The part of it whose requests hold more than they may after it."""
        beyond = [
            one
            for one, new in work.computed()
            if self._held(one) > self._needs.held(one.spec, one.prompt, one.cached + new)
        ]
        reading = work.reading if work.reading in beyond else None
        return Work(reading, work.chunk if reading else 0, [one for one in work.decoding if one in beyond])

    def _preempt(self) -> None:
        if len(self.running) == 1:
            raise PoolFull("A request that was admitted because it fits alone does not.")
        youngest = self.running[-1]
        self.close(youngest)
        self._waiting.insert(0, youngest)
        self.preemptions += 1

    def close(self, request: Request) -> None:
        """Free what a running request holds."""
        assert request.row is not None
        self._attention.close(request.row)
        request.closed()
        self.running.remove(request)
        self._no_room = False
        self._unshared = True
