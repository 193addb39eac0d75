"""Drives the load: which request is due when, what follows its end, and when the run is over."""

import asyncio
from collections import deque
from collections.abc import Callable
from math import inf
from time import monotonic_ns
from typing import Protocol

from harness.client import counters as count
from harness.client.exchange import Exchange
from harness.client.journal import Journal, Kind
from harness.client.permits import Permits
from harness.client.retries import may_retry
from harness.client.setup import Setup
from harness.client.timeline import Timeline
from harness.load.arrivals import ArrivalProcess

_FLUSH_NS = 1_000_000_000
OK = 200


class Sender(Protocol):
    """Who carries requests."""

    def send(self, exchange: Exchange) -> None:
        """Send now, or as soon as possible."""

    def abandon(self, exchange: Exchange) -> None:
        """Forget about it."""


class Driver:
    """Starts sessions by the arrival process, and each later turn when its think time ended.

    payloads: the whole HTTP request of each request number; None where it is built from earlier answers,
    which `answered(request, bytes)` hands over and `built` brings back.
    """

    def __init__(
        self,
        setup: Setup,
        arrival: ArrivalProcess,
        payloads: dict[int, bytes | None],
        timeline: Timeline,
        journal: Journal,
        counters: memoryview,
        on_window_end: Callable[[], None],
        permits: Permits,
        opens_s: float,
    ) -> None:
        self._sessions = setup.sessions
        self._limits = setup.limits
        self._arrival = arrival
        self._payloads = payloads
        self._timeline = timeline
        self._journal = journal
        self._counters = counters
        self._on_window_end = on_window_end
        self._permits = permits
        self._opens_s = opens_s
        self.sender: Sender | None = None
        self.answered: Callable[[int, bytes], None] | None = None
        self._live: dict[int, Exchange] = {}  # scheduled and not over
        self._queue: deque[Exchange] = deque()  # due, held back by the bound on concurrency
        self._unbuilt: dict[int, Exchange] = {}  # due, body not there yet
        self._unbuildable: set[int] = set()
        self._builder_gone = False
        self._in_flight = 0
        self._started = 0
        self._finished = 0
        self._closed = False
        self._alarm_ns: int | None = None  # when sessions that are not due yet are looked at again
        self._over = asyncio.get_running_loop().create_future()
        self.start_ns = 0
        self.end_ns: int | None = None  # of a window bounded by time

    async def run(self, start_ns: int | None = None) -> None:
        """Drive the load to its end. What was asked for is then in the journal, whichever way it ended.

        start_ns: when it begins, None for now.
        """
        self.start_ns = now = start_ns or monotonic_ns()
        self._counters[count.STARTED_NS] = now
        self._counters[count.STATE] = count.STATES.index("running")
        self._timeline.call_at(now + _FLUSH_NS, self._flush)
        if self._limits.duration_ns is not None:
            close_ns = now + round(self._opens_s * 1e9) + self._limits.duration_ns
            self._timeline.call_at(close_ns, self._close, close_ns)
        if start_ns is None:
            self._start_sessions(now)
        else:
            self._timeline.call_at(now, self._start_sessions, now)
        self._end_if_idle()
        await self._over

    def stop(self) -> None:
        """End now: requests in flight, or still waiting to be sent, become errors of kind "aborted"."""
        self._closed = True
        self._give_up("aborted", "The run was stopped while this request was under way.")
        self._end_if_idle()

    def built(self, request: int, payload: bytes | None) -> None:
        """The request that depends on earlier answers is there; None if it cannot be built."""
        self._payloads[request] = payload
        if payload is None:
            self._unbuildable.add(request)
        exchange = self._unbuilt.pop(request, None)
        if exchange is not None and not exchange.over:
            exchange.payload = payload
            self._admit(exchange)

    def builder_gone(self) -> None:
        """No request that depends on earlier answers will be built any more."""
        self._builder_gone = True
        for request in list(self._unbuilt):
            self.built(request, None)

    # Sessions

    def _start_sessions(self, freed_ns: int) -> None:
        """Start every session that is due. `freed_ns`: when, in a closed loop, the slot became free."""
        while not self._closed and self._started < len(self._sessions):
            # A closed loop counts from the instant of the free slot, an open one from the start of the run.
            base_ns = self.start_ns if self._arrival.open_loop else freed_ns
            elapsed_s = (base_ns - self.start_ns) / 1e9
            wait_s = self._arrival.wait(elapsed_s, self._started, self._finished)
            if wait_s is None or wait_s == inf:
                return
            due_ns = base_ns + round(wait_s * 1e9)
            if due_ns > monotonic_ns():
                if self._alarm_ns is None or due_ns < self._alarm_ns:  # one is enough, however many ask
                    self._alarm_ns = due_ns
                    self._timeline.call_at(due_ns, self._alarm, due_ns)
                return
            session = self._started
            self._started += 1
            self._due(session, 0, due_ns)

    def _alarm(self, due_ns: int) -> None:
        if self._alarm_ns == due_ns:
            self._alarm_ns = None
        self._start_sessions(due_ns)

    def _due(self, session: int, turn: int, scheduled_ns: int) -> None:
        if self._closed:
            return
        planned = self._sessions[session][turn]
        request = planned.request
        exchange = Exchange(request, session, turn, scheduled_ns, self._payloads[request], planned.feeds)
        self._payloads[request] = None
        self._live[request] = exchange
        self._journal.add(Kind.SCHEDULED, request, scheduled_ns)
        if exchange.payload is None and not (self._builder_gone or request in self._unbuildable):
            self._unbuilt[request] = exchange
        else:
            self._admit(exchange)

    def _admit(self, exchange: Exchange) -> None:
        if exchange.payload is None:
            self.failed(exchange, "no_history", "There is no earlier answer to build this turn on.")
        else:
            self._queue.append(exchange)
            self._send_queued()

    def _send_queued(self) -> None:
        """Send what waits for a permit, in order, as far as there are any."""
        while self._queue and self._permits.take():
            self._send(self._queue.popleft())
        self._permits.call_when_free(self._send_queued if self._queue else None)
        self._counters[count.WAITING] = len(self._queue)

    def _send(self, exchange: Exchange) -> None:
        exchange.launched = True
        self._in_flight += 1
        self._counters[count.IN_FLIGHT] = self._in_flight
        self._counters[count.SENT] += 1
        self._sender().send(exchange)
        if not exchange.over:
            self._watch(exchange)

    def _watch(self, exchange: Exchange) -> None:
        """Look again when patience would end. One timer a request, moved on only when it rings."""
        now = monotonic_ns()
        if exchange.over:
            return
        if exchange.was_sent and now >= exchange.spent_ns(self._limits):
            self._sender().abandon(exchange)
            self.failed(
                exchange, "timeout_request", "The whole answer took longer than load.request_timeout_s."
            )
        elif exchange.sent_ns == 0:  # connecting, which has a limit of its own, or waiting to be sent again
            again_ns = (
                now + self._limits.shortest_ns
            )  # so no later than patience can end, whenever it is sent
            if exchange.was_sent:
                again_ns = min(again_ns, exchange.spent_ns(self._limits))
            self._timeline.call_at(again_ns, self._watch, exchange)
        elif now < (deadline := exchange.deadline_ns(self._limits)):
            self._timeline.call_at(deadline, self._watch, exchange)
        else:
            self._sender().abandon(exchange)
            self.failed(exchange, "timeout_token", "Nothing more arrived in time.")

    # How requests end

    def completed(self, exchange: Exchange, ns: int) -> None:
        """The response ended at `ns`."""
        if exchange.status != OK and self._try_again(exchange, f"http_{exchange.status}"):
            return
        self._ended(exchange, ns, b"".join(exchange.kept or ()))

    def failed(self, exchange: Exchange, kind: str, detail: str) -> None:
        """There will be no complete response."""
        if exchange.over or self._try_again(exchange, kind):
            return
        now = monotonic_ns()
        self._journal.add(Kind.ERROR, exchange.request, now, f"{kind}\n{detail}".encode())
        self._counters[count.ERRORS] += 1
        self._ended(exchange, now, b"")

    def _try_again(self, exchange: Exchange, kind: str) -> bool:
        """Whether the request will be sent again after this error, in a while; it stays in flight until then."""
        if exchange.retries >= self._limits.retries or not may_retry(kind):
            return False
        now = monotonic_ns()
        self._journal.add(Kind.RETRY, exchange.request, now, kind.encode())
        exchange.again()
        self._timeline.call_at(now + self._limits.retry_wait_ns, self._send_again, exchange)
        return True

    def _send_again(self, exchange: Exchange) -> None:
        if not exchange.over:
            self._sender().send(exchange)

    def _ended(self, exchange: Exchange, ns: int, answer: bytes) -> None:
        exchange.over = True
        exchange.payload = None
        feeds, exchange.kept = exchange.kept is not None, None
        self._live.pop(exchange.request, None)
        self._counters[count.FINISHED] += 1
        if exchange.launched:
            self._in_flight -= 1
            self._permits.give()
            self._counters[count.IN_FLIGHT] = self._in_flight
        if feeds and self.answered is not None and not self._closed:
            self.answered(exchange.request, answer)
        self._follow(exchange, ns)
        if self._queue:
            self._send_queued()
        self._end_if_idle()

    def _follow(self, exchange: Exchange, ns: int) -> None:
        session = self._sessions[exchange.session]
        turn = exchange.turn + 1
        if turn < len(session):
            due_ns = ns + session[turn].think_ns
            if (at_ns := session[turn].at_ns) is not None:
                due_ns = max(ns, self.start_ns + at_ns)
            if due_ns > ns:
                self._timeline.call_at(due_ns, self._due, exchange.session, turn, due_ns)
            else:
                self._due(exchange.session, turn, due_ns)
        else:
            self._finished += 1
            if not self._arrival.open_loop:
                self._start_sessions(ns)

    # How the run ends

    def _close(self, close_ns: int) -> None:
        """The time is up: nothing new is scheduled; what is under way may drain."""
        self._closed = True
        self.end_ns = close_ns
        self._on_window_end()
        self._counters[count.STATE] = count.STATES.index("draining")
        self._timeline.call_at(
            close_ns + self._limits.drain_ns,
            self._give_up,
            "timeout_drain",
            "Not finished within load.drain_s after the run had closed.",
        )
        self._end_if_idle()

    def _give_up(self, kind: str, detail: str) -> None:
        self._queue.clear()
        for exchange in list(self._live.values()):
            self._sender().abandon(exchange)
            self.failed(exchange, kind, detail)

    def _end_if_idle(self) -> None:
        all_done = self._finished == len(self._sessions)
        if not self._live and (self._closed or all_done) and not self._over.done():
            self._over.set_result(None)

    def _flush(self) -> None:
        self._journal.flush()
        if self._journal.failure is not None:
            self.stop()
        elif not self._over.done():
            self._timeline.call_at(monotonic_ns() + _FLUSH_NS, self._flush)

    def _sender(self) -> Sender:
        if self.sender is None:
            raise RuntimeError("the driver has no sender")
        return self.sender
