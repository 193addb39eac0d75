"""benchmarks/kv: this project's engine as a driver, in a process of its own, held against transformers."""

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numba
import pytest
import torch

from backends.kvcompress import prefill
from benchmarks.kv.ours import Ours
from benchmarks.kv.processes import Worker
from benchmarks.kv.settings import ours
from harness.core.errors import HarnessError
from tests.support.kv_engine import VOCABULARY, tiny_llama

PROMPTS = [[(7 * i + shift) % VOCABULARY for i in range(60)] for shift in (0, 3)]
CONTINUATIONS = [[(5 * i + shift) % VOCABULARY for i in range(12)] for shift in (1, 2)]


def setting(words: str) -> dict[str, Any]:
    return ours("", f"kernel=torch recent=4 {words}").setting


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    folder = tmp_path_factory.mktemp("tiny")
    return folder, tiny_llama(folder)


@pytest.fixture(scope="module")
def worker(model: tuple[Path, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    log = tmp_path_factory.mktemp("log") / "log"
    with Worker("ours", Path(sys.executable), model[0], 1, log) as started:
        yield started


def test_forced_and_greedy_are_those_of_transformers(model: tuple[Path, Any], worker: Worker):
    full = setting("")
    for step in (1, 5, 12):
        handle = worker.call("open", prompts=PROMPTS, setting=full)["handle"]
        found = worker.call("forced", handle=handle, continuations=CONTINUATIONS, step=step)
        answers = worker.call("greedy", handle=handle, tokens=4)
        worker.call("close", handle=handle)
        for prompt, forced, values, answer in zip(PROMPTS, CONTINUATIONS, found, answers, strict=True):
            ids = [*prompt, *forced, *answer]
            with torch.inference_mode():
                log_probs = model[1](torch.tensor([ids])).logits[0].log_softmax(-1)
            expected = log_probs[len(prompt) - 1 :][range(12), forced]
            assert values == pytest.approx(expected.tolist(), abs=1e-4)
            assert answer == log_probs[len(prompt) + 11 : -1].argmax(-1).tolist()


def test_a_budget_halves_what_is_held_also_where_caches_are_filled(worker: Worker):
    held = {}
    for words in ("", "evict=knorm budget.fraction=0.5"):
        opened = worker.call("open", prompts=PROMPTS, setting=setting(words))
        filled = worker.call("fill", context=60, batch=2, setting=setting(words))
        held[words] = [worker.call("held_bytes", handle=handle) for handle in (opened["handle"], filled)]
        assert len(worker.call("decode", handle=filled, steps=3)) == 3
        assert 0 <= opened["compress_seconds"] <= opened["seconds"]
        for handle in (opened["handle"], filled):
            worker.call("close", handle=handle)
    full, half = held.values()
    assert full[0] == full[1] and half[0] == half[1]
    assert half[0] == pytest.approx(full[0] / 2, rel=0.1)


def test_what_fails_there_is_told_here_and_the_process_goes_on(worker: Worker):
    with pytest.raises(HarnessError, match="budget"):
        worker.call("open", prompts=PROMPTS, setting=setting("evict=knorm"))
    assert worker.call("pss_bytes") > 1 << 20


def test_two_drivers_in_one_process_measure_each_its_own(
    model: tuple[Path, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for owner, name in ((torch, "set_num_threads"), (torch, "set_grad_enabled"), (numba, "set_num_threads")):
        monkeypatch.setattr(
            owner, name, lambda value: None
        )  # settings of the whole process, of other tests too
    first, second = Ours(model[0], 1), Ours(model[0], 1)
    timed: list[Ours] = []
    for driver in (first, second):
        monkeypatch.setattr(driver, "_timed", partial(_noted, timed, driver))
    untimed = prefill.add_given
    with torch.no_grad():
        for driver in (first, second):
            timed.clear()
            handle = driver.open(PROMPTS, setting("evict=h2o budget.fraction=0.5"))["handle"]
            assert timed and set(map(id, timed)) == {id(driver)}
            driver.close(handle)
    assert prefill.add_given is untimed


def _noted(timed: list[Ours], driver: Ours, method: Any) -> Any:
    def note(*given: Any) -> Any:
        timed.append(driver)
        return method(*given)

    return note
