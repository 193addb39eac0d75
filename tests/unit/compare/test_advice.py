"""Advice against runs whose truth is known."""

import math
import random
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hydra import compose, initialize_config_module
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.compare.advice import Advice, advise
from harness.compare.asked import asked
from harness.compare.next_steps import next_steps
from harness.compare.settings import COST, RATE, Terms
from harness.config import register_schemas, typed
from harness.records.reader import Run, read_run
from harness.report.advice import advice_section, reasons
from harness.report.labels import setting_labels
from tests.support.advice_runs import RIGHT, a_run, terms
from tests.support.synthetic_runs import Schedule, write_run


def advice(runs: list[Run], of: Terms | None = None) -> Advice:
    (found,) = asked(runs, setting_labels(runs))
    return advise(found, of or terms())


def told(found: Advice) -> str:
    section = advice_section(found)
    parts = [section.headline, *section.sentences, *(" ".join(reasons) for _, reasons in section.excluded)]
    return "\n".join([*parts, *(f"{step.why} {' '.join(step.commands)}" for step in section.steps)])


def repeated(name: str, rates: list[float], *arguments: object, **changes: object) -> list[Run]:
    return [a_run(f"{name}{n}", rate, *arguments, **changes) for n, rate in enumerate(rates)]  # type: ignore[arg-type]


def test_the_cheapest_that_keeps_the_slo():
    """360 an hour is 0.1 a second: 100 tokens/s are 1000 a million. The fastest has its first token too late."""
    runs = [
        a_run("r1", 100, price=360, ttft_ms=300, right=RIGHT),
        a_run("r2", 200, "int8", price=360, ttft_ms=300, right=RIGHT),
        a_run("r3", 400, "int4", price=360, ttft_ms=900, right=RIGHT),
    ]
    found = advice(runs, terms(ttft_p95_ms=600))
    assert found.by == COST
    assert [one.label for one in found.ranked] == ["quant=int8", "quant=none"]
    assert found.figure(found.ranked[0]).middle == pytest.approx(500)
    assert found.best is not None and found.best.saving is not None
    assert found.best.saving.share == pytest.approx(0.5)
    assert found.best.cost["per_user_hour"].middle == pytest.approx(90)  # 4 users
    (late,) = found.excluded
    assert reasons(late) == ["TTFT p95 900 ms misses 600 ms by 50.0 %"]


def test_an_slo_that_the_runs_were_not_made_with_is_judged_from_their_requests(tmp_path: Path):
    write_run(tmp_path, "r1", Schedule(requests=60, ttft_ms=200, gap_ms=20))
    run = read_run("r1", tmp_path)
    assert run.summary["slo_percentiles"] == []
    assert advice([run], terms(ttft_p50_ms=200, tpot_p90_ms=20)).best is not None
    assert advice([run], terms(ttft_p50_ms=199)).best is None
    every = advice([run], terms(tpot_ms=19.9))
    assert reasons(every.excluded[0]) == ["0.0 % of requests keep every limit, 99 % are needed"]


def test_five_runs_a_side_decide_and_fewer_do_not():
    slow, fast = [100.0, 101, 99, 100.5, 99.5], [120.0, 121, 119, 120.5, 119.5]
    five = advice([*repeated("a", slow, right=RIGHT), *repeated("b", fast, "int8", right=RIGHT)])
    assert five.verdict is not None and five.verdict.word == "better"
    assert "16.7 % cheaper than quant=none" in told(five)
    assert "95 % interval" in told(five)
    two = advice([*repeated("a", slow[:2], right=RIGHT), *repeated("b", fast[:2], "int8", right=RIGHT)])
    assert two.best is not None and two.best.label == "quant=int8"  # still ranked
    assert two.verdict is not None and two.verdict.word == "inconclusive"
    (step, *_) = next_steps(two)
    assert any("repeats=5" in command for command in step.commands)


def test_what_loses_too_much_is_left_out_whatever_it_costs():
    worse = [*RIGHT[:170], *[False] * 30]  # 20 points of recall fewer
    worse = [right and place % 5 > 0 for place, right in enumerate(RIGHT)]
    runs = [a_run("r1", 100, right=RIGHT), a_run("r2", 300, "int2", right=worse)]
    found = advice(runs)
    assert found.best is not None and found.best.label == "quant=none"
    assert "surely loses 19.0 points of recall, accepted are 2.00 points" in told(found)
    assert advice(runs, terms(losses={"recall": None})).ranked[0].label == "quant=int2"


def test_a_loss_within_the_limit_that_few_items_cannot_show_asks_for_more_of_them():
    runs = [a_run("r1", 100, right=RIGHT), a_run("r2", 300, "int8", right=[False, *RIGHT[1:]])]
    found = advice(runs)
    assert found.best is not None and found.best.label == "quant=int8"
    commands = [command for step in next_steps(found) for command in step.commands]
    assert any("quality.recall.trials=" in command and "quant=int8" in command for command in commands)
    assert any("quality.recall.trials=" in command and "quant=int8" not in command for command in commands)


def test_an_exact_run_at_chance_makes_a_task_uninformative():
    lucky = [place % 10 == 0 for place in range(200)]
    found = advice([a_run("r1", 100, right=lucky), a_run("r2", 300, "int2", right=[False] * 200)])
    assert found.best is not None and found.best.label == "quant=int2"
    assert "uninformative" in told(found)


def test_unmeasured_quality_is_said_and_asked_for():
    found = advice([a_run("r1", 100), a_run("r2", 300, "int2")])
    assert "quality was not measured" in told(found)
    assert any("quality=[perplexity," in command for step in next_steps(found) for command in step.commands)


def test_a_setting_measured_again_for_its_quality_is_the_same_setting():
    speed = [a_run("r1", 100), a_run("r2", 150, "int8")]
    again = [a_run("r3", 101, right=RIGHT), a_run("r4", 149, "int8", right=RIGHT)]
    found = advice([*speed, *again])
    assert [(one.label, len(one.runs), len(one.losses)) for one in found.ranked] == [
        ("quant=int8", 2, 1),
        ("quant=none", 2, 0),
    ]


def test_nothing_keeps_the_slo():
    found = advice(
        [a_run("r1", 100, ttft_ms=900), a_run("r2", 90, "int8", ttft_ms=700)], terms(ttft_p95_ms=600)
    )
    assert found.best is None and found.verdict is None
    assert told(found).startswith("No setting may be taken: none keeps the SLO")
    (step, *_) = next_steps(found)
    assert "quant=int8 misses the SLO by least" in step.why
    assert "load=search" in step.commands[0] and "slo.ttft_p95_ms=600" in step.commands[0]


def test_ties_go_by_name_and_are_told():
    found = advice([a_run("r1", 100, right=RIGHT), a_run("r2", 100, "int8", right=RIGHT)])
    assert [one.label for one in found.ranked] == ["quant=int8", "quant=none"]
    assert found.alike == ("quant=none",)


def test_one_run_alone():
    found = advice([a_run("r1", 100)])
    assert found.best is not None and found.verdict is None
    assert told(found).startswith("kvcompress: 2.78 USD a million tokens; the only setting.")


def test_without_a_price_for_all_it_ranks_by_throughput_and_says_so():
    found = advice([a_run("r1", 100, price=None), a_run("r2", 200, "int8")])
    assert found.by == RATE and found.ranked[0].runs[0].id == "r2"
    assert "hardware.price_per_hour" in told(found)
    given_one = Terms(None, 0.99, {}, price_per_hour=360, currency="EUR")
    assert advice([a_run("r1", 100, price=None), a_run("r2", 200, "int8")], given_one).by == COST


def test_a_dearer_machine_must_be_faster_by_more_than_its_price():
    cheap = a_run("r1", 100, price=1.0)
    machine = {**cheap.fingerprint, "machine": {"cpu": "another", "cores": 64}}
    dear = a_run("r2", 150, price=2.0, fingerprint=machine)
    assert [one.runs[0].id for one in advice([cheap, dear]).ranked] == ["r1", "r2"]


def test_a_setting_whose_price_was_given_later_is_the_same_setting():
    runs = [a_run("r1", 100, price=None), a_run("r2", 100, price=1.0), a_run("r3", 200, "int8", price=1.0)]
    assert [(one.label, len(one.runs)) for one in advice(runs).ranked] == [
        ("quant=int8", 1),
        ("quant=none", 2),
    ]


def test_runs_that_do_not_count():
    runs = [
        a_run("r1", 100),
        a_run("r2", 900, "int8", failed_check=True),
        a_run("r3", 900, "int4", status="failed", reason="out of memory.", summary={}),
    ]
    found = advice(runs)
    assert [one.label for one in found.ranked] == ["quant=none"]
    assert {one.label: reasons(one) for one in found.excluded} == {
        "quant=int8": ["no run of it counts: not steady"],
        "quant=int4": ["no run of it counts: failed, out of memory"],
    }


@pytest.mark.parametrize("check", ["quiet_machine", "same_pace"])
def test_a_disturbed_machine_is_told_and_takes_no_run_out(check: str):
    disturbed = [{"check": check, "ok": False, "spoils": ["output_tokens_per_s"]}]
    found = advice([a_run("r1", 100, validity=disturbed), a_run("r2", 90, "int8")])
    assert found.ranked[0].label == "quant=none"
    assert "1 of 2 ranked runs were made while something else used the machine or its own speed" in told(
        found
    )


def test_of_seeds_that_only_some_settings_ran_nothing_is_ranked():
    runs = [a_run("r1", 100), a_run("r2", 50, "int8"), a_run("r3", 500, "int8", plan="another")]
    found = advice(runs)
    assert found.asked.left_out == 1
    assert found.ranked[0].label == "quant=none"
    assert "1 run left out" in told(found)


def test_what_is_to_be_typed_next_is_a_configuration_of_the_harness():
    slow = [place % 10 == 0 for place in range(200)]
    cases = [
        ([a_run("r1", 100, ttft_ms=900)], terms(ttft_p95_ms=600)),
        ([a_run("r1", 100, requests=10)], terms(ttft_p95_ms=600, tpot_ms=50)),
        ([a_run("r1", 100), a_run("r2", 300, "int2")], terms()),
        ([a_run("r1", 100, right=RIGHT), a_run("r2", 300, "int8", right=[False, *RIGHT[1:]])], terms()),
        ([a_run("r1", 100, right=slow), a_run("r2", 300, "int8", right=slow)], terms()),
        ([a_run("r1", 100, failed_check=True)], terms()),
    ]
    typed_next = [
        shlex.split(line)
        for runs, of in cases
        for step in next_steps(advice(runs, of))
        for line in step.commands
    ]
    single = [words[3:] for words in typed_next if "-m" not in words[3:]]
    assert len(single) >= 8
    register_schemas()
    with initialize_config_module("conf", version_base="1.3"):
        for overrides in single:
            assert typed(compose("config", overrides)).workload.name == "rag"


RATES = st.floats(50, 500)
LATENCIES = st.floats(50, 1000)
LOSSES = st.integers(0, 60)
SETTINGS = st.lists(st.tuples(RATES, LATENCIES, LOSSES), min_size=1, max_size=5)
NAMES = ["none", "int8", "int4", "int3", "int2"]


def made(values: list[tuple[float, float, int]]) -> list[Run]:
    return [
        a_run(f"r{n}", rate, NAMES[n], ttft_ms=ttft, right=[False] * lost + RIGHT[lost:], requests=10)
        for n, (rate, ttft, lost) in enumerate(values)
    ]


@settings(deadline=None, max_examples=15)
@given(SETTINGS, st.randoms(use_true_random=False), LATENCIES)
def test_the_order_of_runs_does_not_matter(
    values: list[tuple[float, float, int]], shuffled: random.Random, limit: float
):
    runs = made(values)
    other = list(runs)
    shuffled.shuffle(other)
    first, second = (advice(order, terms(ttft_p95_ms=limit)) for order in (runs, other))
    assert [one.label for one in first.ranked] == [one.label for one in second.ranked]
    assert [one.label for one in first.excluded] == [one.label for one in second.excluded]
    assert advice_section(first).headline == advice_section(second).headline


@settings(deadline=None, max_examples=15)
@given(SETTINGS, LATENCIES, LATENCIES)
def test_loosening_the_slo_never_makes_the_best_dearer(
    values: list[tuple[float, float, int]], one: float, other: float
):
    tight, loose = (advice(made(values), terms(ttft_p95_ms=limit)) for limit in sorted((one, other)))
    if tight.best is not None:
        assert loose.best is not None
        assert loose.figure(loose.best).middle <= tight.figure(tight.best).middle


@settings(deadline=None, max_examples=15)
@given(SETTINGS.filter(lambda found: len(found) < 5), LATENCIES)
def test_what_is_worse_in_everything_never_wins(values: list[tuple[float, float, int]], limit: float):
    """The last setting is slower, later and loses more than the first, which is exact."""
    rate, ttft, _ = values[0]
    first = (rate, ttft, 0)
    runs = made([first, *values[1:], (rate * 0.9, ttft * 1.1, 61)])
    best = advice(runs, terms(ttft_p95_ms=limit)).best
    assert best is None or best.runs[0].id != runs[-1].id


def test_a_run_made_with_limits_of_its_own_is_held_to_those_that_are_asked_for():
    run = a_run("r1", 100, ttft_ms=500)
    strict = replace(run, summary={**run.summary, "slo_percentiles": [{"key": "ttft_p95_ms", "met": False}]})
    strict.__dict__["requests"] = run.requests
    assert advice([strict], terms(ttft_p95_ms=600)).best is not None


def read(run: Run, *sums: float, **more: object) -> Run:
    """The run, which also predicted a text in windows of 100 tokens with these sums of −log p."""
    quality = {"perplexity": 20.0, "window_nll": list(sums), "window_tokens": [100] * len(sums), **more}
    run.summary["quality"].update(quality)
    return run


WITH_PERPLEXITY = terms(losses={"perplexity": 0.02, "recall": 0.02})


def test_one_window_has_no_interval_and_the_advice_says_so():
    runs = [read(a_run("r1", 100), 300.0), read(a_run("r2", 200, "int8"), 300.5)]
    words = told(advice(runs, WITH_PERPLEXITY))
    assert "perplexity 0.501 % worse, how much worse it may be is unbounded (inconclusive)" in words
    assert "one item cannot tell" in words


def test_what_does_not_show_in_log_probabilities_is_not_measured():
    blind = {"sees_kv_cache": False}
    runs = [
        read(a_run("r1", 100), 300.0, 310.0, **blind),
        read(a_run("r2", 200, "int2"), 300.1, 310.1, **blind),
    ]
    found = advice(runs, WITH_PERPLEXITY)
    assert found.best is not None and not found.best.judged
    words = told(found)
    assert "perplexity is not judged (the KV cache does not show in this engine's log-probabilities)" in words
    assert "quality=[rag,recall]" in words


def test_a_run_without_a_window_has_no_latency_to_judge():
    (only,) = advice([a_run("r1", 100, window={})], terms(ttft_p95_ms=600)).ranked
    assert only.held == ()


def test_of_the_seeds_of_a_setting_the_worst_loss_is_told_and_of_more_items():
    worse = [right and place % 5 > 0 for place, right in enumerate(RIGHT)]
    few = [True] * 20
    exact = [
        a_run("r1", 100, right=RIGHT),
        a_run("r2", 100, right=RIGHT, plan="q"),
        a_run("r3", 100, right=few),
    ]
    packed = [
        a_run("s1", 200, "int2", right=RIGHT),
        a_run(
            "s2", 200, "int2", right=worse, plan="q", failed_check=True
        ),  # its latency is spoilt, no answer is
        a_run("s3", 200, "int2", right=few),
    ]
    for run in (exact[2], packed[2]):
        run.config["quality"]["recall"]["trials"] = 1
    for order in ([*exact, *packed], [*reversed(exact), *reversed(packed)]):
        (left,) = advice(order).excluded
        assert [(one.verdict, one.items) for one in left.losses] == [("loses", 200)]


def test_the_reference_is_the_one_that_was_asked_the_same_and_is_named():
    wide, narrow = a_run("r1", 100), a_run("r2", 100, right=RIGHT)
    narrow.config["backend"]["kv_dtype"] = "bf16"
    packed = a_run("r3", 200, "int8", right=RIGHT)
    found = advice([wide, narrow, packed])
    assert found.best is not None and found.best.runs[0].id == "r3"
    assert found.best.references == ("quant=none · kv_dtype=bf16",)
    assert "Quality against quant=none · kv_dtype=bf16: recall unchanged" in told(found)


def test_full_weights_with_a_packed_cache_are_no_exact_reference():
    full, light = a_run("r1", 100, "int4", right=RIGHT), a_run("r2", 200, "int4", right=RIGHT)
    light.config["backend"]["weight_dtype"] = "int8"
    found = advice([full, light])
    assert [(one.judged, one.losses) for one in found.ranked] == [(False, ()), (False, ())]
    assert found.ranked[0].references == ()


def test_the_headline_claims_the_quality_limit_only_where_all_is_judged():
    judged = [a_run("r1", 100, right=RIGHT), a_run("r2", 200, "int8", right=RIGHT)]
    assert "that keep the quality limit." in advice_section(advice(judged)).headline
    unjudged = [*judged, a_run("r3", 300, "int4")]
    headline = advice_section(advice(unjudged)).headline
    assert "quality limit" not in headline and headline.endswith("; quality not measured for quant=int4.")
    lucky = [place % 10 == 0 for place in range(200)]
    guessed = advice([a_run("r1", 100, right=lucky), a_run("r2", 300, "int2", right=lucky)])
    assert advice_section(guessed).headline.endswith("of 2; quality not measured for quant=int2.")


def test_failed_requests_miss_the_slo_and_are_told_of_what_is_ranked():
    failures = {
        "check": "no_errors",
        "ok": False,
        "spoils": ["output_tokens_per_s", "ttft_ms"],
        "problem": "9 failed",
    }
    broken = [a_run(f"r{n}", 100, validity=[failures]) for n in range(3)]
    for run in broken:
        run.requests.loc[:8, "ok"] = False
    sound = [a_run("s1", 100), a_run("s2", 100, "int8")]
    (left,) = advice([*broken[:2], sound[1]], terms(ttft_p95_ms=600)).excluded
    assert reasons(left) == [
        "no run of it counts: 9 failed (2 runs)",
        "TTFT p95 is a failed request (limit 600 ms)",
    ]
    found = advice([*broken[:1], *sound])
    assert "1 of 2 runs of quant=none do not count: 9 failed." in told(found)
    missed = advice([*broken, *sound], terms(ttft_p95_ms=600))
    assert [one.label for one in missed.ranked] == ["quant=int8"]


def test_why_there_is_no_cost_and_no_slo_is_the_real_reason():
    euros = a_run("r2", 200, "int8")
    euros.config["hardware"]["currency"] = "EUR"
    words = told(advice([a_run("r1", 100), euros]))
    assert "The prices are in EUR and USD, so this ranks by tokens" in words and "No price" not in words
    assert "No SLO was given" in words
    for run, limit in ((euros, 500), (strict := a_run("r1", 100), 900)):
        run.config["slo"] = {"ttft_p95_ms": limit}
    assert "The runs were made with different SLOs" in told(advice([strict, euros]))
    unpriced = told(advice([a_run("r1", 100, price=None), a_run("r2", 200, "int8", price=None)]))
    assert "No price for all" in unpriced


def distributions(run: Run, shift: float) -> Run:
    draws = np.random.default_rng(1)
    logits = draws.normal(size=(8, 4, 30)) + shift * draws.normal(size=(8, 4, 30))
    values = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    rows = [(*place, value) for place, value in np.ndenumerate(values)]
    run.__dict__["next_tokens"] = pd.DataFrame(rows, columns=["prompt", "position", "token", "log_prob"])
    return run


def test_a_divergence_decides_within_as_much_as_is_accepted_of_perplexity():
    runs = [
        distributions(a_run("r1", 100), 0),
        distributions(a_run("r2", 200, "int8"), 0.02),
        distributions(a_run("r3", 300, "int2"), 1),
    ]
    found = advice(runs, terms(losses={"perplexity": 0.015}))
    assert found.best is not None and found.best.label == "quant=int8" and found.best.judged
    (one,) = found.best.losses
    assert one.verdict == "safe" and one.limit == pytest.approx(math.log(1.015))
    words = told(found)
    assert "surely loses" in words and "nats of KL divergence, accepted are 0.0149 nats" in words
