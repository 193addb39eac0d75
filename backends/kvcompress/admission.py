"""Whether one more request may start, and what each may keep from then on: by what they asked for, or by pressure."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from backends.kvcompress.contracts import KvStore, RequestAttention
from backends.kvcompress.needs import Needs
from backends.kvcompress.request import Request
from backends.kvcompress.spec import Budget, KvSpec

_STEP = 16  # slots between two levels of a shared pool


class Admission(Protocol):
    """A scheduler's rule."""

    def admit(self, running: Sequence[Request], candidate: Request) -> bool:
        """Whether the candidate starts beside the running ones; says in each `Request.spec` what it may keep."""
        ...


class Static:
    """Every request is held as it asked to be; it starts where what all are certain to need fits the pool."""

    def __init__(self, store: KvStore, needs: Needs) -> None:
        self._store = store
        self._needs = needs

    def admit(self, running: Sequence[Request], candidate: Request) -> bool:
        """See `Admission`; nobody's setting changes."""
        pages = sum(certain_pages(self._store, self._needs, one) for one in (*running, candidate))
        return pages + _passing(self._needs, [*running, candidate]) <= self._store.pages


class Dynamic:
    """What a request asks for is the least that it gets: the pool is shared by slots, to the largest common level.

    While there is room, everybody keeps everything. Where another request would have to wait, the level falls for
    all until it fits (max-min fairness): the longest give up first, down to their own budget, and who has fewer slots
    than the level keeps everything. Requests without a budget are held as in `Static`.
    """

    def __init__(self, store: KvStore, needs: Needs, attention: RequestAttention) -> None:
        self._store = store
        self._needs = needs
        self._attention = attention

    def admit(self, running: Sequence[Request], candidate: Request) -> bool:
        """See `Admission`; a running request gives up what it holds beyond its budget in its next pass."""
        everybody = [*running, candidate]
        level = self._level(everybody)
        if level is None:
            return False
        for request in everybody:
            if request.asked.evict != "none":
                request.spec = self._at(request, level)
                if request.row is not None:
                    self._attention.rebudget(request.row, request.spec.budget)
        return True

    def _level(self, everybody: list[Request]) -> int | None:
        """Slots of a KV head; None where even what was asked for does not fit."""
        if not self._fits(everybody, 0):
            return None
        low, high = 0, max(request.most_tokens for request in everybody) // _STEP + 1
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self._fits(everybody, middle * _STEP) else (low, middle - 1)
        return low * _STEP

    def _fits(self, everybody: list[Request], level: int) -> bool:
        pages = 0
        for request in everybody:
            if request.asked.evict == "none":
                pages += certain_pages(self._store, self._needs, request)
            else:
                pages += self._needs.held(self._at(request, level), request.prompt, request.most_tokens)
        return pages + _passing(self._needs, everybody) <= self._store.pages

    def _at(self, request: Request, level: int) -> KvSpec:
        most = request.most_tokens
        asked = self._needs.slots(request.asked, request.prompt, most)
        return replace(request.asked, budget=Budget(None, max(1, min(most, max(asked, level))), None))


def certain_pages(store: KvStore, needs: Needs, request: Request) -> int:
    """Pages that it will need in any case, or holds already."""
    held = 0 if request.row is None else store.held_pages(request.row)
    return max(held, needs.held(request.spec, request.prompt, request.certain_tokens))


def _passing(needs: Needs, everybody: Sequence[Request]) -> int:
    return max(needs.passing(request.spec, request.most_tokens) for request in everybody)
