"""The fixed work: timed by a clock that the test moves; the real work is only asked to be done where it should."""

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import orjson
import psutil
import pytest

from harness import fixed_work
from harness.fixed_work import rounds, take_look
from harness.metrics.pace import Pace


class Clock:
    def __init__(self) -> None:
        self.ns = 0

    def takes(self, milliseconds: list[float]) -> Callable[[], None]:
        """Work of which each call takes the next of these times."""
        left = iter(milliseconds)

        def work() -> None:
            self.ns += round(next(left) * 1e6)

        return work


def test_works_take_turns_and_the_first_round_is_not_counted():
    clock = Clock()
    works = {"arithmetic": clock.takes([90, 1, 2, 3]), "copying": clock.takes([70, 10, 20, 30])}
    assert rounds(works, 3, lambda: clock.ns) == [(1, 10), (2, 20), (3, 30)]


def test_a_look_is_the_median_over_rounds_and_cores(monkeypatch: pytest.MonkeyPatch):
    """One core of three is far slower, and so is one round of each."""
    cores = sorted(os.sched_getaffinity(0))[:1] * 3
    of_core = iter(
        [[(1.0, 5.0), (1.2, 5.2), (9.0, 90.0)], [(1.1, 5.1), (1.0, 5.0), (8.0, 80.0)], [(50.0, 99.0)]]
    )
    monkeypatch.setattr(fixed_work, "rounds", lambda works, count, clock: next(of_core))
    look = take_look(cores)
    assert look == Pace(look.ns, 1.2, 5.2, tuple(cores))
    assert Pace.from_record(orjson.loads(orjson.dumps(look.to_record()))) == look


def test_the_real_work_is_done_on_the_cores_asked_for_and_leaves_this_thread_where_it_was(
    monkeypatch: pytest.MonkeyPatch,
):
    before, seen = os.sched_getaffinity(0), []
    done = fixed_work.rounds

    def watched(*arguments):
        seen.append(os.sched_getaffinity(0))
        return done(*arguments)

    monkeypatch.setattr(fixed_work, "rounds", watched)
    monkeypatch.setattr(fixed_work, "_ROUNDS", 1)
    look = take_look(sorted(before))
    assert sorted(seen, key=min) == [{core} for core in sorted(before)]
    assert os.sched_getaffinity(0) == before
    assert look.arithmetic_ms > 0 and look.copying_ms > 0


def memory(monkeypatch: pytest.MonkeyPatch, total: int, available: int) -> None:
    monkeypatch.setattr(
        psutil, "virtual_memory", lambda: SimpleNamespace(total=total << 20, available=available << 20)
    )


@pytest.mark.parametrize(
    ("level_3", "total", "size"),
    [
        ({}, 16384, 64),  # the system does not tell
        ({"0-1": 4}, 16384, 64),
        ({"0-3": 32, "4-7": 32}, 16384, 128),  # two caches, each seen from four cores
        ({"0-7": 1024}, 16384, 512),
        ({"0-7": 1024}, 2048, 128),  # a sixteenth of what this machine has
        ({}, 512, 32),
    ],
)
def test_what_is_copied_is_more_than_the_last_level_caches_hold_so_far_as_memory_allows(
    level_3: dict[str, int], total: int, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Sizes in MiB. How much is free at the moment changes nothing, so that all looks are at the same work."""
    for shared, mib in level_3.items():
        first, last = map(int, shared.split("-"))
        for core in range(first, last + 1):
            for index, level, kib, of in ((0, 1, 32, str(core)), (3, 3, mib << 10, shared)):
                folder = tmp_path / f"cpu{core}" / "cache" / f"index{index}"
                folder.mkdir(parents=True)
                for name, text in (("level", level), ("size", f"{kib}K"), ("shared_cpu_list", of)):
                    (folder / name).write_text(f"{text}\n")
    monkeypatch.setattr(fixed_work, "_CACHES", tmp_path)
    fixed_work._last_level_cache_bytes.cache_clear()
    for available in (total, 1):
        memory(monkeypatch, total, available)
        assert fixed_work._bytes_copied() == size << 20
    fixed_work._last_level_cache_bytes.cache_clear()


def test_no_look_is_taken_where_its_buffer_would_crowd_an_engine(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(fixed_work, "_bytes_copied", lambda: 64 << 20)
    monkeypatch.setattr(fixed_work, "rounds", lambda works, count, clock: [(1.0, 5.0)])
    core = min(os.sched_getaffinity(0))
    memory(monkeypatch, 1024, 127)
    with pytest.raises(MemoryError, match="less than 128 MiB"):
        take_look([core])
    memory(monkeypatch, 1024, 128)
    assert take_look([core]).copying_ms == 5.0
