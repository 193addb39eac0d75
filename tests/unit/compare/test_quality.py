"""Losses against their closed forms, and by simulation: how often an interval holds the truth."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.compare.paired_items import difference_of_shares, ratio_of_perplexities
from harness.compare.quality import baseline_of, loss, verdict_on, weights_baseline_of
from harness.metrics.quality_figures import QUALITY_FIGURES
from harness.records.reader import Run

FIGURES = {figure.path.removeprefix("quality."): figure for figure in QUALITY_FIGURES}


def run(run_id: str, quality: dict[str, Any] | None = None, **backend: Any) -> Run:
    engine = {"name": "kvcompress", "device": "cpu", "dtype": "f32", "kv_dtype": "f32", "weight_dtype": None}
    return Run(
        folder=Path(run_id),
        id=run_id,
        status="complete",
        started_at="",
        config={
            "backend": engine | backend,
            "workload": {"name": "rag"},
            "quality": {"rag": {"items": 40}, "perplexity": {"tokens": 2048}},
            "seed": 0,
        },
        fingerprint={"plan_sha256": "p", "model_sha256": "m"},
        summary={"quality": quality or {}},
    )


def answers(right: list[float], low: float = 0.5) -> dict[str, Any]:
    share = sum(right) / len(right)
    return {"rag": share, "rag_right": right, "rag_chance": 0.25, "rag_interval": [low, 1.0]}


def test_shares_by_the_closed_form_of_paired_proportions():
    # 40 items, 6 lost and 1 won: (n12 + 1)/(n + 2) and (n21 + 1)/(n + 2) are 7/42 and 2/42.
    theirs, ours = [1] * 26 + [0] * 14, [1] * 20 + [0] * 6 + [1] + [0] * 13
    difference, low, high = difference_of_shares(theirs, ours)
    centre = (2 - 7) / 42
    half = 1.959964 * math.sqrt((2 / 42 + 7 / 42 - centre**2) / 42)
    assert difference == pytest.approx(-5 / 40)
    assert (low, high) == (pytest.approx(centre - half), pytest.approx(centre + half))


def test_no_item_changed_is_no_proof_that_none_would():
    _, low, high = difference_of_shares([1] * 20, [1] * 20)
    assert low == -high and 0.1 < high < 0.2


@pytest.mark.parametrize(("lose", "win", "items"), [(0.05, 0.0, 30), (0.15, 0.05, 60), (0.02, 0.02, 100)])
def test_the_interval_of_shares_holds_the_truth_as_often_as_it_says(lose: float, win: float, items: int):
    draws = np.random.default_rng(7).choice([-1, 0, 1], (1500, items), p=[lose, 1 - lose - win, win])
    held = 0
    for changes in draws:
        _, low, high = difference_of_shares(np.where(changes < 0, 1, 0), np.where(changes > 0, 1, 0))
        held += low <= win - lose <= high
    assert held / len(draws) >= 0.93


def test_the_interval_of_perplexity_holds_the_truth_as_often_as_it_says():
    noise = np.random.default_rng(3)
    tokens = [256] * 8
    held = 0
    for _ in range(1000):
        theirs = noise.normal(3.0, 0.5, 8) * tokens
        ours = theirs + noise.normal(0.04, 0.02, 8) * tokens
        _, low, high = ratio_of_perplexities(theirs, ours, tokens)
        held += low <= math.expm1(0.04) <= high
    assert 0.93 <= held / 1000 <= 0.97


def test_perplexity_of_unequal_windows_is_weighed_by_their_tokens():
    difference, low, high = ratio_of_perplexities([300.0, 50.0], [330.0, 50.0], [100, 50])
    assert difference == pytest.approx(math.exp(30 / 150) - 1)
    assert low < difference < high
    assert ratio_of_perplexities([300.0], [330.0], [100])[1:] == (-1.0, math.inf)


@pytest.mark.parametrize(
    ("lost", "word"),
    [((-0.01, 0.05), "safe"), ((0.051, 0.2), "loses"), ((0.05, 0.2), "inconclusive"), ((-0.2, 0.06), "inconclusive")],
)  # fmt: skip
def test_the_word_at_its_boundaries(lost: tuple[float, float], word: str):
    assert verdict_on(lost, 0.05) == word


def test_a_loss_with_its_verdict_and_what_the_data_could_show():
    exact = run("a", answers([1] * 36 + [0] * 4))
    found = loss(exact, run("b", answers([1] * 6 + [0] * 34)), FIGURES["rag"], 0.05)
    assert found is not None
    assert (found.verdict, found.lost, found.items) == ("loses", pytest.approx(0.75), 40)
    same = loss(exact, exact, FIGURES["rag"], 0.05)
    assert same is not None
    assert (same.verdict, same.lost) == ("inconclusive", 0)
    assert same.detectable == same.most_lost > 0.05
    wide = loss(exact, exact, FIGURES["rag"], same.most_lost)
    assert wide is not None and wide.verdict == "safe"


def test_what_guesses_has_nothing_to_lose():
    guessing = run("a", answers([1] * 12 + [0] * 28, low=0.25))
    found = loss(guessing, run("b", answers([0] * 40)), FIGURES["rag"], 0.05)
    assert found is not None and found.verdict == "uninformative"


def test_other_items_are_not_compared():
    exact = run("a", answers([1] * 40))
    other_seed = replace(exact, config=dict(exact.config) | {"seed": 1})
    other_task = replace(exact, config=dict(exact.config) | {"quality": {"rag": {"items": 41}}})
    for other in (run("b"), run("c", answers([1] * 39)), other_seed, other_task):
        assert loss(exact, other, FIGURES["rag"], 0.05) is None


def test_perplexity_is_judged_over_the_same_windows_only():
    def read(sums: list[float], tokens: list[int]) -> dict[str, Any]:
        figure = math.exp(sum(sums) / sum(tokens))
        return {"perplexity": figure, "window_nll": sums, "window_tokens": tokens, "text_sha256": "t"}

    exact = run("a", read([200.0, 210.0, 190.0], [100] * 3))
    found = loss(exact, run("b", read([201.0, 211.0, 191.0], [100] * 3)), FIGURES["perplexity"], 0.05)
    assert found is not None
    assert found.verdict == "safe"
    assert found.difference == pytest.approx(found.candidate / found.baseline - 1)
    assert loss(exact, run("c", read([201.0, 211.0], [100] * 2)), FIGURES["perplexity"], 0.05) is None


def test_the_baseline_has_the_same_weights_and_the_most_exact_cache():
    f32, bf16 = run("f32"), run("bf16", kv_dtype="bf16")
    packed = run("int8 kv", kv={"evict": "none", "quant": "int8", "share": "none"})
    light = run("int8 weights", weight_dtype="int8")
    light_packed = run("both", weight_dtype="int8", kv={"evict": "none", "quant": "int8", "share": "none"})
    evicting = run("evicts", kv={"evict": "h2o", "quant": "none", "share": "none"})
    other = run("other engine", name="openvino", kv_dtype="int8")
    runs = [bf16, packed, light, light_packed, evicting, other, f32]
    assert baseline_of(packed, runs) is f32 and baseline_of(evicting, runs) is f32
    assert baseline_of(bf16, runs) is f32 and baseline_of(f32, runs) is None
    assert baseline_of(light_packed, runs) is light and baseline_of(light, runs) is None
    assert baseline_of(other, runs) is None
    assert baseline_of(packed, [bf16, packed]) is bf16


def test_weights_are_compared_with_the_same_cache_only():
    full, packed = run("a"), run("b", kv_dtype="int8")
    light, light_packed = run("c", weight_dtype="int8"), run("d", weight_dtype="int8", kv_dtype="int8")
    runs = [full, packed, light, light_packed]
    assert weights_baseline_of(light, runs) is full and weights_baseline_of(light_packed, runs) is packed
    assert weights_baseline_of(full, runs) is None and weights_baseline_of(packed, runs) is None
    checkpoint = replace(full, id="e", fingerprint={"plan_sha256": "p", "model_sha256": "quantised"})
    assert weights_baseline_of(checkpoint, [full, checkpoint]) is full
    assert baseline_of(checkpoint, [full, checkpoint]) is None


PACKED = {"evict": "none", "quant": "int4", "share": "none"}
EVICTS = {"evict": "h2o", "quant": "none", "share": "none"}


def options_told(right: list[float], **more: Any) -> dict[str, Any]:
    told = {key.replace("rag", "rag_options"): value for key, value in answers(right).items()}
    return (
        told | {"chunk": 64, "sees_kv_cache": True, "sees_eviction": True, "rag_options_cached": 0.8} | more
    )


@pytest.mark.parametrize(
    ("kv", "more", "why"),
    [
        (EVICTS, {}, ""),
        (EVICTS, {"sees_eviction": False}, "eviction does not show"),
        (PACKED, {"sees_eviction": False}, ""),
        (PACKED, {"sees_kv_cache": False}, "the KV cache does not show"),
        (PACKED, {"rag_options_cached": 0.0}, "in one pass"),
    ],
)
def test_log_probabilities_that_do_not_come_from_the_cache_say_nothing_of_it(
    kv: dict[str, str], more: dict[str, Any], why: str
):
    exact, right = run("a", options_told([1] * 40, **more)), [1] * 38 + [0] * 2
    found = loss(exact, run("b", options_told(right, **more), kv=kv), FIGURES["rag_options"], 0.5)
    assert found is not None
    assert (found.verdict, found.telling) == (("not seen", False) if why else ("safe", True))
    assert why in found.why
    weights = run("c", options_told(right, **more), weight_dtype="int8")
    same_cache = loss(exact, weights, FIGURES["rag_options"], 0.5)
    assert same_cache is not None and same_cache.verdict == "safe"
    written = loss(
        run("d", answers([1] * 40) | more), run("e", answers(right) | more, kv=kv), FIGURES["rag"], 0.5
    )
    assert (
        written is not None and written.verdict == "safe"
    )  # an answer that is written always reads the cache


def test_perplexity_within_one_pass_or_with_no_change_at_all_is_not_seen():
    def read(shift: float, chunk: int) -> dict[str, Any]:
        told = {"window_nll": [200.0 + shift, 210.0 + shift], "window_tokens": [100] * 2, "perplexity": 8.0}
        return told | {"window": 101, "chunk": chunk}

    def verdict(shift: float, chunk: int, **backend: Any) -> str:
        exact, other = run("a", read(0, chunk)), run("b", read(shift, chunk), kv=PACKED, **backend)
        found = loss(exact, other, FIGURES["perplexity"], 0.5)
        assert found is not None
        return found.verdict

    assert verdict(1, 100) == "safe"
    assert verdict(1, 101) == verdict(0, 100) == "not seen"
    itself = run("a", read(0, 100))
    same = loss(itself, itself, FIGURES["perplexity"], 0.5)
    assert same is not None and same.verdict == "safe"


def test_a_record_without_the_windows_tokens_is_not_compared():
    bare = run("a", {"perplexity": 8.0, "window_nll": [200.0, 210.0]})
    assert loss(bare, bare, FIGURES["perplexity"], 0.5) is None


def test_items_that_were_fed_otherwise_are_not_compared():
    exact = run("a", answers([1] * 40))
    fed = {"quality": {**exact.config["quality"], "chunk": 16}}
    assert loss(exact, replace(exact, config={**exact.config, **fed}), FIGURES["rag"], 0.5) is None
