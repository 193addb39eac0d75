"""Quality of two sides by the items that both were asked, against closed forms and known answers."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from harness.compare.cells import Cell
from harness.compare.measures import MEASURES, chosen
from harness.compare.paired_items import difference_of_shares, paired_items, ratio_of_perplexities
from harness.compare.two_sides import Judged, judge
from harness.compare.words import notes, quality_words, row
from harness.compare.write import as_record, markdown
from harness.metrics.quality_figures import QUALITY_FIGURES
from harness.records.reader import Run

FIGURES = {figure.path.removeprefix("quality."): figure for figure in QUALITY_FIGURES}
RAG, PERPLEXITY = FIGURES["rag"], FIGURES["perplexity"]


def run(run_id: str, quality: dict[str, Any], seed: int = 0, items: int = 40) -> Run:
    return Run(
        folder=Path(run_id),
        id=run_id,
        status="complete",
        started_at="",
        config={
            "backend": {"name": "any", "kv_dtype": "f32"},
            "workload": {"name": "rag"},
            "quality": {"rag": {"prompts": items}, "perplexity": {"tokens": 2048}},
            "seed": seed,
        },
        fingerprint={"plan_sha256": f"plan of {seed}", "model_sha256": "m"},
        summary={"quality": quality},
    )


def answers(right: list[float]) -> dict[str, Any]:
    return {"rag": float(np.mean(right)), "rag_right": right, "rag_chance": 0.1, "rag_interval": [0.2, 1.0]}


def windows(nll: list[float], tokens: list[int]) -> dict[str, Any]:
    perplexity = math.exp(sum(nll) / sum(tokens))
    return {"perplexity": perplexity, "window_nll": nll, "window_tokens": tokens, "text_sha256": "t"}


def judged(baseline: list[Run], candidate: list[Run], path: str = "quality.rag", **choice: Any) -> Judged:
    found = judge(
        Cell("rag", "", tuple(baseline), tuple(candidate)),
        chosen(choice.get("gating"), choice.get("least_effects", {})),
    )
    return next(one for one in found.judged if one.measure.path == path)


@pytest.mark.parametrize(
    ("lost", "won", "items", "word"),
    [
        (12, 0, 40, "worse"),
        (0, 12, 40, "better"),
        (3, 1, 40, "inconclusive"),
        (0, 0, 40, "inconclusive"),  # forty unchanged items exclude no loss of one in twenty
        (0, 0, 2000, "same"),
        (1, 1, 2000, "same"),
        (15, 0, 2000, "same"),  # a loss of 0.75 points, sure but smaller than matters
    ],
)
def test_the_word_follows_from_the_items(lost: int, won: int, items: int, word: str):
    rest = items - lost - won
    theirs, ours = [1.0] * lost + [0.0] * won + [1.0] * rest, [0.0] * lost + [1.0] * won + [1.0] * rest
    found = judged([run("a", answers(theirs))], [run("b", answers(ours))])
    assert found.word == word
    assert found.paired is not None and found.paired.items == items
    assert found.paired.difference == pytest.approx((won - lost) / items)
    assert (found.baseline, found.candidate) == (pytest.approx(np.mean(theirs)), pytest.approx(np.mean(ours)))


def test_four_losses_of_five_answers_are_no_proof():
    found = judged([run("a", answers([1.0] * 5))], [run("b", answers([0.0] * 4 + [1.0]))])
    assert found.paired is not None and found.paired.high < 0  # by the interval alone
    assert (found.word, found.verdict.p) == ("inconclusive", pytest.approx(2 / 16))


def _lost(items: int, lost: int, **choice: Any) -> Judged:
    sides = [1.0] * items, [0.0] * lost + [1.0] * (items - lost)
    return judged(*([run(name, answers(side))] for name, side in zip("ab", sides, strict=True)), **choice)


@pytest.mark.parametrize("items", [1, 5, 6, 7, 12, 40, 300])
@pytest.mark.parametrize("deciding", [1, 4])
def test_the_least_that_could_be_told_is_the_least_that_is(items: int, deciding: int):
    """Asked of the verdict itself, with 1, 2, 3 … answers lost and no effect too small to matter."""
    paths = ["quality.rag", "quality.recall", "ttft_ms.p50", "tpot_ms.p50"][:deciding]
    choice: dict[str, Any] = {"gating": paths, "least_effects": {"": 1e-6}}
    words = [_lost(items, lost, **choice).word for lost in range(1, items + 1)]
    told = _lost(items, 0, **choice).verdict.detectable
    if "worse" not in words:
        assert told == math.inf
    else:
        least = words.index("worse") + 1
        assert told == pytest.approx(least / items)
        assert set(words[least:]) <= {"worse"}


def test_where_no_loss_could_be_told_no_size_of_one_is_said():
    """All of five answers lost have p = 1/16 by the sign test."""
    choice = chosen(["quality.rag"], {})
    sides = (run("a", answers([1.0] * 5)),), (run("b", answers([0.0] * 5)),)
    found = judge(Cell("rag", "", *sides), choice)
    assert found.word == "inconclusive"
    said = " ".join(notes(found))
    assert "over 5 items (no difference could have been told)" in said
    assert "(so few items show no difference, however large)" in said
    assert "could have been shown" not in said


def test_more_items_are_advised_where_quality_decides_and_no_repeats():
    measures = chosen(["quality.rag"], {})
    sides = (run("a", answers([1.0] * 40)),), (run("b", answers([0.0] + [1.0] * 39)),)
    advice = judge(Cell("rag", "", *sides), measures).advice
    assert "quality.rag.prompts" in advice and "more seeds" in advice and "repeats" not in advice
    guessing = {"rag_interval": [0.0, 0.3]}
    unable = (run("a", answers([1.0] * 40) | guessing),), (run("b", answers([0.0] * 40) | guessing),)
    assert judge(Cell("rag", "", *unable), measures).advice == ""


def test_one_window_has_no_interval_and_says_what_to_raise():
    sides = (run("a", windows([700.0], [256])),), (run("b", windows([720.0], [256])),)
    found = judge(Cell("rag", "", *sides), chosen(["quality.perplexity"], {}))
    (one,) = found.judged
    assert one.word == "inconclusive" and row(one)[4] == "–"
    said = " ".join(notes(found))
    assert "one window shows no difference: raise quality.perplexity.tokens" in said
    assert "1 window (no difference could have been told)" in said and "no size" not in said


def test_right_answers_change_by_points_though_other_items_were_asked():
    theirs, ours = [1.0] * 16 + [0.0] * 24, [1.0] * 12 + [0.0] * 29
    found = judged([run("a", answers(theirs))], [run("b", answers(ours), items=41)])
    assert found.paired is None
    assert row(found)[3:5] == (f"{100 * (12 / 41 - 16 / 40):+.1f} pts", "–")


def test_a_sure_difference_that_does_not_matter_is_neither_better_nor_worse():
    theirs, ours = [1.0] * 2000, [0.0] * 60 + [1.0] * 1940
    found = judged(
        [run("a", answers(theirs))], [run("b", answers(ours))], least_effects={"quality.rag": 0.05}
    )
    assert found.word == "same"
    close = judged(
        [run("a", answers(theirs))], [run("b", answers(ours))], least_effects={"quality.rag": 0.035}
    )
    assert (close.word, close.verdict.why) == ("inconclusive", "the difference is smaller than matters")


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=5, max_size=200))
def test_the_other_way_round_it_is_the_other_word(items: list[tuple[bool, bool]]):
    theirs, ours = ([float(one) for one in side] for side in zip(*items, strict=True))
    there, back = (
        judged([run("a", answers(one))], [run("b", answers(other))])
        for one, other in ((theirs, ours), (ours, theirs))
    )
    turned = {"better": "worse", "worse": "better"}
    assert back.word == turned.get(there.word, there.word)
    assert there.paired is not None and back.paired is not None
    assert there.paired.low == pytest.approx(-back.paired.high)
    if there.word in turned:  # whatever is called a difference, the sign test over the same items does too
        changed = [one for one in items if one[0] != one[1]]
        p = binomtest(sum(one for _, one in changed), len(changed)).pvalue
        assert there.verdict.p == pytest.approx(p) and p <= 0.05


def test_repeats_are_no_more_items_and_other_seeds_are():
    theirs, ours = [1.0] * 36 + [0.0] * 4, [0.0] * 6 + [1.0] * 30 + [0.0] * 4
    once = judged([run("a", answers(theirs))], [run("b", answers(ours))])
    repeats = judged([run(f"a{n}", answers(theirs)) for n in range(5)], [run("b", answers(ours))])
    assert repeats.paired == once.paired
    seeds = judged(
        [run(f"a{seed}", answers(theirs), seed) for seed in range(3)],
        [
            run(f"b{seed}", answers(ours), seed) for seed in (2, 1, 0, 7)
        ],  # what one side was not asked is left out
    )
    assert seeds.paired is not None and seeds.paired.items == 120
    known = difference_of_shares(theirs * 3, ours * 3)
    assert (seeds.paired.difference, seeds.paired.low, seeds.paired.high) == pytest.approx(known)


def test_an_item_that_repeats_answer_otherwise_counts_by_its_mean():
    sides = [run("a1", answers([1.0, 1.0, 0.0])), run("a2", answers([1.0, 0.0, 0.0]))]
    items = paired_items(sides, [run("b", answers([1.0, 1.0, 1.0]))], RAG)
    assert items is not None and items.baseline == (1.0, 0.5, 0.0)


def test_the_windows_of_a_text_count_once_whatever_the_seed():
    tokens, nll = [256] * 8, [700.0 + n for n in range(8)]
    more = [value + 15 + n % 3 for n, value in enumerate(nll)]
    theirs = [run(f"a{seed}", windows(nll, tokens), seed) for seed in range(3)]
    ours = [run(f"b{seed}", windows(more, tokens), seed) for seed in range(3)]
    found = judged(theirs, ours, "quality.perplexity")
    assert found.word == "worse" and found.paired is not None and found.paired.items == 8
    known = ratio_of_perplexities(nll, more, tokens)
    assert (found.paired.difference, found.paired.low, found.paired.high) == pytest.approx(known)
    assert found.candidate / found.baseline == pytest.approx(1 + known[0])
    assert found.verdict.ratio.low == pytest.approx(1 + known[1])


def test_a_figure_that_decides_with_others_is_allowed_fewer_false_alarms():
    theirs, ours = [1.0] * 40, [0.0] * 6 + [1.0] * 34
    sides = [run("a", answers(theirs))], [run("b", answers(ours))]
    alone = judged(*sides, gating=["quality.rag"])
    shared = judged(*sides, gating=["quality.rag", "quality.recall", "ttft_ms.p50", "tpot_ms.p50"])
    assert (alone.word, shared.word) == ("worse", "inconclusive")
    assert shared.paired is not None
    known = difference_of_shares(theirs, ours, 0.05 / 4)
    assert known[1] <= 0 <= known[2]  # judged by the wider one
    shown = difference_of_shares(theirs, ours)  # as its heading says, and as for speed
    assert (shared.paired.low, shared.paired.high) == pytest.approx(shown[1:])
    assert shared.verdict.why == "the difference could be chance at a false alarm rate of 0.0125"


def test_other_items_are_not_compared_and_chance_is_no_quality():
    right = [1.0] * 30 + [0.0] * 10
    other = judged([run("a", answers(right))], [run("b", answers([0.0] * 40), items=41)])
    assert (other.word, other.paired) == (
        "inconclusive",
        None,
    ) and "both sides were asked" in other.verdict.why
    guessing = {"rag_interval": [0.0, 0.3], "rag_chance": 0.25}
    sides = [[run(name, answers(part) | guessing)] for name, part in (("a", right), ("b", [0.0] * 40))]
    assert judged(*sides).verdict.why == "neither side is above chance"
    one_sided = judged([run("a", answers(right))], sides[1])
    assert one_sided.word == "worse"


def test_a_quantised_cache_that_nothing_read_is_not_called_the_same():
    tokens, nll = [256] * 8, [700.0 + n for n in range(8)]
    exact = run("a", windows(nll, tokens))
    small = run("b", windows(nll, tokens))
    small = replace(small, config={**small.config, "backend": {"name": "any", "kv_dtype": "int8"}})
    for sides in (([exact], [small]), ([small], [exact])):  # whichever of them is the candidate
        found = judged(*sides, "quality.perplexity")
        assert found.word == "inconclusive" and "the very same" in found.verdict.why
        assert found.verdict.detectable is None


@pytest.mark.parametrize("turned", [False, True])
def test_one_run_that_could_not_see_the_cache_leaves_nothing_decided(turned: bool):
    """Of either side, and though the first runs of both could."""
    tokens, nll = [256] * 8, [700.0 + n for n in range(8)]
    exact = [run("a", windows(nll, tokens))]
    small = [run(f"b{n}", windows([value + n for value in nll], tokens)) for n in range(2)]
    small = [
        replace(one, config={**one.config, "backend": {"name": "any", "kv_dtype": "int8"}}) for one in small
    ]
    small[1].summary["quality"]["sees_kv_cache"] = False
    sides = (small, exact) if turned else (exact, small)
    found = judged(*sides, "quality.perplexity")
    assert found.word == "inconclusive" and "does not show in this engine's" in found.verdict.why


def test_points_items_and_the_least_that_could_be_told_are_said():
    theirs, ours = [1.0] * 40, [0.0] * 12 + [1.0] * 28
    found = judge(Cell("rag", "", (run("a", answers(theirs)),), (run("b", answers(ours)),)), MEASURES)
    (one,) = found.judged
    assert one.paired is not None
    assert row(one)[:4] == ("RAG answers", "100 %", "70 %", "-30.0 pts")
    low, high = one.paired.low, one.paired.high
    assert row(one)[4] == f"{100 * low:+.1f} … {100 * high:+.1f}"
    (sentence,) = quality_words(found)
    assert "RAG answers over 40 items (a difference of 15.0 points could have been told)" in sentence
    assert sentence in markdown([found])
    equal = judge(Cell("rag", "", (run("a", answers(theirs)),), (run("b", answers(theirs)),)), MEASURES)
    assert row(equal.judged[0])[3] == "0.0 pts"  # a zero has no sign
    assert any(
        "RAG answers (the difference could be chance)" in sentence for sentence in quality_words(equal)
    )
    (figure,) = as_record([found])["cells"][0]["figures"]
    assert figure["paired_items"]["items"] == 40 and figure["verdict"] == "worse"
