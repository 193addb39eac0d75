"""How long a busy client may let arrivals gather before it reads them: interrupt moderation, as network cards do it.

The kernel keeps when each arrived, so a read that comes later tells the same. What it must not do is let two events
of a stream fall into one read, which share one instant, or keep a closed loop waiting.
"""

WINDOW_NS = 20_000_000  # the pause is looked at again so often
LONGEST_NS = 2_500_000
_FIRST_NS = 1_000_000
_SHORTEST_NS = 200_000  # below it a pause saves nothing
_READS_WANTED = 16  # in one go: with more, waking is no longer what costs
_READS_WORTH = 4  # with fewer it is not worth a pause
_MARGIN = 5, 4  # gaps within streams are longer than the pause by this factor
_EXCEPT = 8  # but for one read in so many: the last events of an answer often come together
_SHARE_OF_ANSWER = 100  # a pause is at most this part of the time an answer takes
_FORGOTTEN_NS = 1_000_000  # added to the shortest answer in each window: one is not held against all others
_LONG_ANSWER_NS = LONGEST_NS * _SHARE_OF_ANSWER


class Moderation:
    """Chooses the pause from the rate of reads, the gaps between those of one stream, and how long answers take.

    pause_ns: 0 for none. gap_ns: what a pause, with the delay of a busy machine, is never to exceed. Whoever reads
    counts the gaps within streams that are shorter.
    """

    def __init__(self) -> None:
        self.pause_ns = 0
        self._allowed_ns = _FIRST_NS  # by the gaps and late wake-ups; grows until they say no
        self._answer_ns = _LONG_ANSWER_NS  # the shortest lately
        self._opened_ns = 0
        self._reads = 0
        self._short = 0
        self._late = False
        self.gap_ns = self._allowed_ns * _MARGIN[0] // _MARGIN[1]

    def answered(self, took_ns: int) -> None:
        """An answer was complete, so long after its request was sent."""
        if took_ns < self._answer_ns:
            self._answer_ns = took_ns

    def woke(self, now_ns: int, reads: int, short: int, late: bool) -> int:
        """At `now_ns` so many reads were made, `short` of them within gap_ns of the one before on their stream.

        late: the pause had become longer than gap_ns. Returns the pause from here on.
        """
        self._late |= late
        self._reads += reads
        self._short += short
        if now_ns - self._opened_ns >= WINDOW_NS:
            self._decide(now_ns - self._opened_ns)
            self._opened_ns = now_ns
            self._reads = self._short = 0
            self._late = False
        return self.pause_ns

    def _decide(self, elapsed_ns: int) -> None:
        if self._short * 2 > self._reads:
            self._allowed_ns //= 2
        elif self._late or self._short * _EXCEPT > self._reads:
            self._allowed_ns = self._allowed_ns * 4 // 5
        else:
            self._allowed_ns = min(self._allowed_ns * 9 // 8, LONGEST_NS)
        self._allowed_ns = max(self._allowed_ns, _SHORTEST_NS // 2)
        self.gap_ns = self._allowed_ns * _MARGIN[0] // _MARGIN[1]
        pause = min(
            self._allowed_ns,
            self._answer_ns // _SHARE_OF_ANSWER,
            elapsed_ns * _READS_WANTED // max(self._reads, 1),
        )
        worth = pause >= _SHORTEST_NS and self._reads * pause >= _READS_WORTH * elapsed_ns
        self.pause_ns = pause if worth else 0
        self._answer_ns = min(self._answer_ns * 9 // 8 + _FORGOTTEN_NS, _LONG_ANSWER_NS)
