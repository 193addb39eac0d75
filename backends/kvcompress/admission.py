"""Whether one more request may start, and what each may keep from then on: by what they asked for, or by pressure."""

from collections.abc import Sequence
from typing import Protocol

from backends.kvcompress.contracts import KvStore, RequestAttention
from backends.kvcompress.needs import Needs
from backends.kvcompress.request import Request
from backends.kvcompress.scheduling import Scheduling
from backends.kvcompress.shares import FLOORS, budget_at, highest_level


class Admission(Protocol):
    """A scheduler's rule."""

    def admit(self, running: Sequence[Request], candidate: Request) -> bool:
        """Whether the candidate starts beside the running ones; says in each `Request.spec` what it may keep."""
        ...

    def share(self, running: Sequence[Request]) -> None:
        """Say anew what each may keep, since a prompt was read or somebody has gone."""
        ...


class Static:
    """Every request is held as it asked to be; it starts where what all are taken to need fits the pool.

    headroom: tokens by which every answer of no certain length is taken to grow. Without them a request that had to
    give way comes back at the first free page, is computed again, and has to give way again.
    """

    def __init__(self, store: KvStore, needs: Needs, headroom: int) -> None:
        self._store = store
        self._needs = needs
        self._headroom = headroom

    def admit(self, running: Sequence[Request], candidate: Request) -> bool:
        """See `Admission`; nobody's setting changes."""
        everybody = [*running, candidate]
        pages = sum(pages_as_asked(self._store, self._needs, one, self._headroom) for one in everybody)
        return pages + _passing(self._needs, everybody) <= self._store.pages

    def share(self, running: Sequence[Request]) -> None:
        """Nothing changes."""


class Dynamic:
    """A request gets what it asked for times its weight at least, and the more the more room there is (`shares`).

    The weight (`Scheduling.weight`) is that of the prompt's length and of its attention, first as its workload class
    is known to be, then as measured. While there is room, everybody keeps everything. Where another request would
    have to wait, the level falls for all until it fits. Requests without a budget are held as in `Static`.
    """

    def __init__(
        self, store: KvStore, needs: Needs, attention: RequestAttention, scheduling: Scheduling
    ) -> None:
        self._store = store
        self._needs = needs
        self._attention = attention
        self._scheduling = scheduling

    def admit(self, running: Sequence[Request], candidate: Request) -> bool:
        """See `Admission`; a running request gives up what it holds beyond its budget in its next pass."""
        everybody = [*running, candidate]
        level = self._level(everybody)
        if level is None or (running and level < FLOORS):
            return False
        self._apply(everybody, level)
        return True

    def share(self, running: Sequence[Request]) -> None:
        """See `Admission`. Prompts that turned out broader than their class may leave all a little less."""
        level = self._level(running)
        if level is not None:
            self._apply(running, level)

    def _level(self, everybody: Sequence[Request]) -> int | None:
        for request in everybody:
            if request.row is not None and (measured := self._attention.breadth(request.row)):
                request.breadth = measured
        most = max(request.most_tokens for request in everybody)
        return highest_level(lambda level: self._fits(everybody, level), most, self._scheduling)

    def _fits(self, everybody: Sequence[Request], level: int) -> bool:
        pages = 0
        for request in everybody:
            if request.asked.evict == "none":
                pages += pages_as_asked(self._store, self._needs, request, self._scheduling.headroom)
            else:
                spec = budget_at(level, request, self._needs, self._scheduling)
                pages += self._needs.held(spec, request.prompt, request.most_tokens)
        return pages + _passing(self._needs, everybody) <= self._store.pages

    def _apply(self, everybody: Sequence[Request], level: int) -> None:
        for request in everybody:
            if request.asked.evict == "none":
                continue
            spec = budget_at(level, request, self._needs, self._scheduling)
            if spec != request.spec:
                request.spec = spec
                if request.row is not None:
                    self._attention.rebudget(request.row, spec.budget)


def pages_as_asked(store: KvStore, needs: Needs, request: Request, headroom: int) -> int:
    """Pages that it is taken to need, or holds already."""
    held = 0 if request.row is None else store.held_pages(request.row)
    return max(held, needs.held(request.spec, request.prompt, request.expected_tokens(headroom)))


def _passing(needs: Needs, everybody: Sequence[Request]) -> int:
    return max(needs.passing(request.spec, request.most_tokens) for request in everybody)
