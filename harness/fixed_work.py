"""Times a fixed piece of work on the cores that an engine uses, while the engine does nothing.

It must measure the machine alone: nothing of it depends on the engine, the model or a library that they share. Both
of its parts leave the interpreter's lock, so that all cores work at once, as they do under an engine.
"""

import hashlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from statistics import median

import psutil

from harness.metrics.pace import Pace

Work = Callable[[], object]
_ROUNDS = 12  # of each part: with both about a third of a second on a core of 2.5 GHz
_HASHES = 20_000
_CACHES = Path("/sys/devices/system/cpu")
_BEYOND_CACHE = (
    2  # what is copied from and to, in turns, is so many times the last-level cache: none of it stays
)
_LEAST_BYTES, _MOST_BYTES = 64 << 20, 512 << 20  # the most is what a small container can still spare
_MOST_OF_MEMORY = 1 / 16
_FREE_BESIDE = 2  # times the buffer: an engine that runs beside the look keeps room of its own


def take_look(cores: Sequence[int]) -> Pace:
    """Do the work on each of these cores at once, in threads of this process; its other threads keep their cores.

    Raises MemoryError where too little memory is free for it. The buffer is never made smaller then: less memory may
    lie in a cache, and a look at it could not be held against the others.
    """
    began, size = time.monotonic_ns(), _bytes_copied()
    if psutil.virtual_memory().available < _FREE_BESIDE * size:
        raise MemoryError(f"less than {_FREE_BESIDE * size >> 20} MiB of memory are free")
    share = size // len(cores)

    def on_core(core: int) -> list[tuple[float, ...]]:
        os.sched_setaffinity(0, {core})  # 0: this thread alone
        return rounds({"arithmetic": _hash, "copying": _copying(share)}, _ROUNDS, time.perf_counter_ns)

    with ThreadPoolExecutor(len(cores)) as threads:
        found = [pair for pairs in threads.map(on_core, cores) for pair in pairs]
    return Pace(began, median(pair[0] for pair in found), median(pair[1] for pair in found), tuple(cores))


def rounds(works: Mapping[str, Work], count: int, clock_ns: Callable[[], int]) -> list[tuple[float, ...]]:
    """Milliseconds of each work in each of `count` rounds, after one that is not counted.

    The works take turns, so that what lasts for a part of the look falls on all of them.
    """
    found = []
    for number in range(count + 1):
        taken = []
        for work in works.values():
            start = clock_ns()
            work()
            taken.append((clock_ns() - start) / 1e6)
        if number:  # a core that slept wakes up slowly, and fresh memory is given page by page
            found.append(tuple(taken))
    return found


def _hash() -> object:
    return hashlib.pbkdf2_hmac("sha256", b"fixed", b"work", _HASHES)


def _copying(size: int) -> Work:
    import numpy as np

    source, target = (np.ones(max(size // 16, 1)) for _ in range(2))  # 8 bytes each, half of the size a side
    return lambda: np.copyto(target, source)


def _bytes_copied() -> int:
    """By all cores together, the same in every look at this machine."""
    most = min(_MOST_BYTES, int(_MOST_OF_MEMORY * psutil.virtual_memory().total))
    return min(max(_BEYOND_CACHE * _last_level_cache_bytes(), _LEAST_BYTES), most)


@cache
def _last_level_cache_bytes() -> int:
    """All last-level caches of the machine together; 0 where the system does not tell."""
    levels: dict[int, dict[str, int]] = {}
    for index in _CACHES.glob("cpu[0-9]*/cache/index*"):
        try:
            level = int((index / "level").read_text())
            size = int((index / "size").read_text().strip().removesuffix("K")) << 10
            shared = (index / "shared_cpu_list").read_text().strip()
        except (OSError, ValueError):
            continue
        levels.setdefault(level, {})[shared] = size
    return sum(levels[max(levels)].values()) if levels else 0
