"""What an implementation must offer to be measured, and the loop in which a process offers it.

Each implementation lives in a process and an environment of its own; `worker.py` is that process's program, and this
module imports nothing but the standard library, since the peers' environments hold nothing of this project.
"""

import json
import sys
import traceback
from collections.abc import Sequence
from typing import Any, Protocol, TextIO

Setting = dict[str, Any]  # how a cache is held, in the implementation's own words (see `settings.py`)


class Driver(Protocol):
    """Requests are opened together and go on together: a handle names a batch of them.

    Seconds are CPU seconds of the whole process, all threads.
    """

    def open(self, prompts: Sequence[Sequence[int]], setting: Setting) -> dict[str, Any]:
        """Read prompts of equal length through the cache. Returns handle, seconds, and compress_seconds: the part of
        them that scoring, evicting and packing took, and what attention computes for scores alone."""
        ...

    def fill(self, context: int, batch: int, setting: Setting) -> int:
        """A handle on caches that hold `context` random tokens each: for speeds, which don't depend on values."""
        ...

    def forced(self, handle: int, continuations: Sequence[Sequence[int]], step: int) -> list[list[float]]:
        """Go on with these ids, `step` at a time; returns the natural log-probability of each, given all before."""
        ...

    def greedy(self, handle: int, tokens: int) -> list[list[int]]:
        """The most probable ids, `tokens` of them for each request."""
        ...

    def decode(self, handle: int, steps: int) -> list[float]:
        """Seconds of each of so many decoding steps of the whole batch."""
        ...

    def held_bytes(self, handle: int) -> int:
        """What the caches hold, everything counted."""
        ...

    def close(self, handle: int) -> None:
        """Forget the requests."""
        ...


def serve(driver: Driver, answers: TextIO) -> None:
    """Answer one JSON object a line, {"call": method, "args": {...}}, with {"result": ...} or {"error": ...}."""
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            call = pss_bytes if asked["call"] == "pss_bytes" else getattr(driver, asked["call"])
            answer = {"result": call(**asked["args"])}
        except Exception as error:  # the other side decides what a failure means
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def pss_bytes() -> int:
    """This process's share of resident memory (Linux: PSS of /proc/self/smaps_rollup)."""
    with open("/proc/self/smaps_rollup") as file:  # noqa: PTH123
        for line in file:
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    raise OSError("/proc/self/smaps_rollup has no line Pss")
