"""benchmarks/kv: intervals against closed forms, the text's halves and windows, what readings say of the targets."""

import math
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np
import pytest
from scipy.stats import norm

from benchmarks.kv.intervals import perplexity_ratio, share
from benchmarks.kv.readings import Readings
from benchmarks.kv.settings import OURS, Named, ours
from benchmarks.kv.targets import all_targets
from benchmarks.kv.text import HALVES, half_of_corpus, windows
from harness.core.errors import UsageError


def test_a_constant_difference_is_its_own_interval():
    full = [[-1.0, -2.0, -3.0], [-0.5, -0.25]]
    worse = [[value - 0.01 for value in row] for row in full]
    ratio = perplexity_ratio(worse, full)
    assert [ratio.value, ratio.low, ratio.high] == pytest.approx([math.exp(0.01)] * 3)


def test_two_windows_give_the_ends_of_their_own_distribution():
    # Resampling two windows gives both of one (1/4 each) or one of each (1/2): the 2.5 % quantiles are the windows'.
    full = [[0.0] * 4, [0.0] * 4]
    ratio = perplexity_ratio([[-0.1] * 4, [-0.3] * 4], full)
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx(
        (math.exp(0.2), math.exp(0.1), math.exp(0.3))
    )


def test_many_windows_give_the_normal_interval():
    rng = np.random.default_rng(0)
    differences = rng.normal(0.01, 0.05, size=(200, 16))
    ratio = perplexity_ratio((-differences).tolist(), np.zeros_like(differences).tolist())
    means = differences.mean(1)
    half = norm.ppf(0.975) * means.std() / math.sqrt(len(means))
    assert math.log(ratio.value) == pytest.approx(means.mean())
    assert math.log(ratio.high) - math.log(ratio.value) == pytest.approx(half, rel=0.05)
    assert math.log(ratio.value) - math.log(ratio.low) == pytest.approx(half, rel=0.05)


def test_windows_are_resampled_whole():
    # The same tokens, first spread over windows and then bunched in some of them: the bunched ones say less.
    rng = np.random.default_rng(1)
    offsets = np.repeat(rng.normal(0, 0.1, size=40), 16)
    spread = rng.permutation(offsets)
    zeros = np.zeros((40, 16)).tolist()
    bunched, mixed = (perplexity_ratio(one.reshape(40, 16).tolist(), zeros) for one in (offsets, spread))
    assert bunched.value == pytest.approx(mixed.value)
    assert bunched.high - bunched.low > 2 * (mixed.high - mixed.low)


def test_windows_that_differ_are_refused():
    with pytest.raises(ValueError, match="not the same"):
        perplexity_ratio([[0.0]], [[0.0, 0.0]])


def test_a_share_has_wilsons_interval():
    found, z, of = share(28, 32), norm.ppf(0.975), 32
    middle = (28 + z**2 / 2) / (of + z**2)
    half = z / (of + z**2) * math.sqrt(28 * 4 / of + z**2 / 4)
    assert (found.value, found.low, found.high) == pytest.approx((28 / 32, middle - half, middle + half))


def test_halves_share_no_document_and_are_about_equal():
    tune, judge = map(half_of_corpus, HALVES)
    assert 0.8 < len(tune) / len(judge) < 1.25
    for text in topics.values():
        assert (text in tune) + (text in judge) == 1
    with pytest.raises(UsageError, match="judge"):
        half_of_corpus("all")


def test_windows_are_disjoint_and_in_the_text():
    ids = list(range(100))
    found = windows(ids, 4, 15, 5)
    joined = [[*one.prompt, *one.continuation] for one in found]
    assert all(one == list(range(one[0], one[0] + 20)) for one in joined)
    assert len({token for one in joined for token in one}) == 80
    with pytest.raises(UsageError, match="Use fewer"):
        windows(ids, 6, 15, 5)


def test_settings_are_told_apart_by_what_they_are():
    by_hand = ours("mine", "quant=int8")
    assert by_hand.key == ours("int8", OURS["int8"]).key != ours("full", "").key
    assert by_hand.setting["kv"]["quant"] == "int8" and by_hand.setting["kv_dtype"] == "f32"


def test_readings_come_back_from_their_file(tmp_path: Path):
    file = tmp_path / "readings.jsonl"
    named = Named("ours", "full", {"kv": {}})
    Readings(file).add("decode", named, context=2048, batch=1, seconds=0.1)
    Readings(file).add("decode", named, context=2048, batch=8, seconds=0.2)
    found = Readings(file)
    assert [one["seconds"] for one in found.of("decode", named, batch=8)] == [0.2]
    assert not list(found.of("decode", Named("ours", "int8", {"kv": {"quant": "int8"}})))


def named(name: str) -> Named:
    return ours(name, {**OURS, "auto": "quant=int4"}[name])


def test_a_target_is_met_at_its_limit_and_missed_beyond():
    dynamic = Named("transformers", "DynamicCache", {})
    readings = Readings(None)
    targets = {one.wanted: one for one in all_targets(readings, named, "judge")}
    assert targets and all(one.met is None and one.measured is None for one in targets.values())
    readings.add("decode", dynamic, context=2048, batch=1, seconds=1.6)
    readings.add("decode", named("full"), context=2048, batch=1, seconds=1.0)
    readings.add("decode", dynamic, context=2048, batch=8, seconds=2.5)
    readings.add("decode", named("full"), context=2048, batch=8, seconds=1.0)
    met = {one.wanted: one.met for one in all_targets(readings, named, "judge") if one.met is not None}
    assert [met[key] for key in met if key.startswith("decode at 2048, batch")] == [True, False]


@pytest.mark.parametrize(("windows_measured", "met"), [(8, True), (7, False)])
def test_perplexity_counts_only_over_enough_windows(windows_measured: int, met: bool):
    readings = Readings(None)
    for name, value in (("full", -1.0), ("auto", -1.01)):
        for window in range(windows_measured):
            readings.add(
                "perplexity", named(name), half="judge", of=8, window=window, held_bytes=9e6,
                log_probs=[value] * 4,
            )  # fmt: skip
    found = [one for one in all_targets(readings, named, "judge") if "auto: perplexity" in one.wanted]
    assert [one.met for one in found] == [met]
