"""What holds for every workload's plan."""

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from harness.core.errors import UsageError
from harness.core.requests import Plan
from harness.core.tokenizer import Tokenizer
from tests.support.workload_options import longest_context, workload_options
from workloads.registry import draw_plan
from workloads.sharing import common_prefix

ROOT = Path(__file__).parents[3]
NAMES = ("chat", "rag", "summarization")
PRINT_HASHES = """
from tests.support.workload_options import workload_options
from tests.unit.workloads.conftest import SMOLLM2
from harness.core.model_store import resolve
from workloads.registry import draw_plan
tokenizer = resolve(SMOLLM2).tokenizer()
for name in ("chat", "rag", "summarization"):
    plan = draw_plan(workload_options(name), tokenizer, seed=11, warmup=3, context_length=4096)
    print(plan.sha256(), *(hash(request.prompt_ids) for request in plan.warmup))
"""


def drawn(tokenizer: Tokenizer, name: str, seed: int = 11, warmup: int = 0, **overrides: object) -> Plan:
    return draw_plan(workload_options(name, **overrides), tokenizer, seed, warmup, context_length=4096)


def test_the_same_seed_gives_the_same_bytes_in_any_process(default_plans: dict[str, Plan]) -> None:
    expected = [
        " ".join(map(str, (plan.sha256(), *(hash(request.prompt_ids) for request in plan.warmup))))
        for plan in default_plans.values()
    ]
    # This process has a hash seed of its own, so one other process is the second of two.
    environment = {**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", PRINT_HASHES],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == expected


@pytest.mark.parametrize("name", NAMES)
def test_another_seed_gives_other_requests(
    tokenizer: Tokenizer, default_plans: dict[str, Plan], name: str
) -> None:
    other = drawn(tokenizer, name, seed=12)
    assert not {r.prompt_ids for r in other.requests} & {r.prompt_ids for r in default_plans[name].requests}


@pytest.mark.parametrize("name", NAMES)
def test_more_requests_keep_the_first_ones(tokenizer: Tokenizer, name: str) -> None:
    few = drawn(tokenizer, name, requests=6)
    more = drawn(tokenizer, name, requests=12, warmup=2)
    assert more.requests[:6] == few.requests


@pytest.mark.parametrize("name", NAMES)
def test_ids_are_those_of_the_rendered_messages(
    tokenizer: Tokenizer, default_plans: dict[str, Plan], name: str
) -> None:
    plan = default_plans[name]
    for request in (*plan.requests, *plan.warmup):
        assert list(request.prompt_ids) == tokenizer.encode(tokenizer.render_chat(request.messages))
    assert [request.index for request in plan.requests] == list(range(len(plan.requests)))
    assert [request.index for request in plan.warmup] == [0, 1, 2]


@pytest.mark.parametrize("name", NAMES)
def test_warmup_shares_nothing_but_template_and_fixed_words(
    default_plans: dict[str, Plan], name: str
) -> None:
    plan = default_plans[name]
    fixed = min(common_prefix(plan.warmup[0].prompt_ids, other.prompt_ids) for other in plan.requests)
    for warm in plan.warmup:
        # A few tokens can agree by chance ("Document 1" and "Document 12"), a cache block of text cannot.
        assert all(
            common_prefix(warm.prompt_ids, request.prompt_ids) < fixed + 8 for request in plan.requests
        )
    assert not {e for r in plan.requests for e in r.expected} & {e for r in plan.warmup for e in r.expected}


@pytest.fixture(scope="module")
def countable_words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus in which no word comes twice, so that a shared word is shared text."""
    folder = tmp_path_factory.mktemp("words")
    for file in range(40):
        words = [f"w{file * 500 + i}x" for i in range(500)]
        lines = [" ".join(words[i : i + 10]) for i in range(0, 500, 10)]
        (folder / f"{file:02}.txt").write_text("\n\n".join(lines))
    return folder


@pytest.mark.parametrize("name", NAMES)
def test_warmup_shares_no_word_of_the_corpus(tokenizer: Tokenizer, countable_words: Path, name: str) -> None:
    corpus = {"corpus__name": "folder", "corpus__path": str(countable_words)}
    if name == "rag":
        corpus["chunks"] = 60  # type: ignore[assignment]
    plan = drawn(tokenizer, name, warmup=4, requests=20, **corpus)
    measured, warmed = (
        {int(n) for r in requests for n in re.findall(r"w(\d+)x", tokenizer.render_chat(r.messages))}
        for requests in (plan.requests, plan.warmup)
    )
    assert len(measured) > 200
    assert len(warmed) > 50
    # The documented rule: the last tenth of the corpus is kept for warm-up.
    assert max(measured) < min(warmed)
    assert min(warmed) > 17_500


@pytest.mark.parametrize("name", NAMES)
def test_the_default_run_fits_the_slow_engine(default_plans: dict[str, Plan], name: str) -> None:
    assert longest_context(default_plans[name]) <= 4096
    assert default_plans[name].sources["corpus"] == "pydoc"
    assert len(default_plans[name].sources["corpus_sha256"]) == 64


def test_shared_prefix_tags_are_the_longest_prefix_with_an_earlier_request(
    default_plans: dict[str, Plan],
) -> None:
    for plan in default_plans.values():
        prompts = [request.prompt_ids for request in plan.requests]
        for i, request in enumerate(plan.requests):
            longest = max((common_prefix(prompts[i], earlier) for earlier in prompts[:i]), default=0)
            assert request.tags["shared_prefix_tokens"] == longest
            assert request.tags["shared_prefix_share"] == round(longest / len(prompts[i]), 4)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("output", ["5..9", "free:20", "free"])
def test_output_lengths_are_fixed_drawn_or_free(tokenizer: Tokenizer, name: str, output: str) -> None:
    for request in drawn(tokenizer, name, requests=4, output_tokens=output).requests:
        if output == "5..9":
            assert request.output_tokens == request.max_output_tokens
            assert 5 <= request.max_output_tokens <= 9
        else:
            assert request.output_tokens is None
            assert request.max_output_tokens == (20 if output == "free:20" else 4096 - request.prompt_tokens)


@pytest.mark.parametrize("name", NAMES)
def test_the_context_is_filled_to_the_last_token_and_not_beyond(tokenizer: Tokenizer, name: str) -> None:
    options = workload_options(name, requests=1, prompt_tokens=1000, output_tokens=24)
    assert longest_context(draw_plan(options, tokenizer, 0, 0, context_length=1024)) == 1024
    with pytest.raises(UsageError) as caught:
        draw_plan(options, tokenizer, 0, 0, context_length=1023)
    for part in (
        "workload.prompt_tokens",
        "workload.output_tokens",
        "backend.context_length=1023",
        "1000",
        "24",
    ):
        assert part in str(caught.value)


@pytest.mark.parametrize("name", NAMES)
def test_the_smallest_length_is_told_and_is_possible(tokenizer: Tokenizer, name: str) -> None:
    with pytest.raises(UsageError, match=r"workload\.prompt_tokens=12 is too short") as caught:
        drawn(tokenizer, name, requests=4, prompt_tokens=12, warmup=1)
    smallest = int(str(caught.value).rstrip(".").rpartition("=")[2])
    plan = drawn(tokenizer, name, requests=1, prompt_tokens=smallest)
    assert plan.requests[0].prompt_tokens == smallest


@pytest.mark.parametrize(
    ("name", "overrides", "message"),
    [
        ("chat", {"requests": 0}, "workload.requests=0"),
        ("chat", {"history": "none"}, "workload.history=none"),
        ("chat", {"prompt_tokens": None}, "workload.prompt_tokens=null"),
        ("chat", {"turns": "x"}, "workload.turns=x"),
        ("chat", {"think_time_s": "-1"}, "workload.think_time_s=-1"),
        ("chat", {"history": "real", "output_tokens": "free"}, "free:MAX"),
        ("chat", {"system_tokens": 3}, "workload.system_tokens=3 is too short"),
        ("rag", {"order": "best"}, "workload.order=best"),
        ("rag", {"chunks": 3}, "workload.chunks=3"),
        ("rag", {"chunks": 5000}, "has text for"),
        ("rag", {"chunks": 90_000}, "more than can be told apart"),
        ("rag", {"chunk_tokens": 20}, "workload.chunk_tokens=20"),
        ("rag", {"zipf_exponent": -1.0}, "workload.zipf_exponent"),
        ("rag", {"output_tokens": "abc"}, "workload.output_tokens=abc"),
        ("summarization", {"facts": -1}, "workload.facts=-1"),
        ("summarization", {"prompt_tokens": None}, "workload.prompt_tokens=None"),
        ("summarization", {"corpus__name": "folder"}, "needs workload.corpus.path"),
    ],
)
def test_an_impossible_option_is_named(
    tokenizer: Tokenizer, name: str, overrides: dict, message: str
) -> None:
    with pytest.raises(UsageError, match=message.replace(".", r"\.")):
        drawn(tokenizer, name, **overrides)


def test_an_unknown_workload_names_the_choices(tokenizer: Tokenizer) -> None:
    with pytest.raises(UsageError, match=r"workload=poetry is unknown.*chat, file, rag, summarization"):
        draw_plan(replace(workload_options("chat"), name="poetry"), tokenizer, 0, 0, 4096)
