"""The tasks through a server, over HTTP: one that answers from the prompt, one that guesses, one without a route."""

import json
import random
import re
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from backends.base import Endpoint
from harness.metrics.quality_figures import QUALITY_FIGURES
from harness.quality.options import (
    QualityOptions,
    RagQualityOptions,
    ReasoningOptions,
    RecallOptions,
    SummaryQualityOptions,
)
from harness.quality.phase import measure_quality
from tests.support.backends import endpoint
from tests.support.http_server import QuietHandler, served
from tests.support.model import embedded_tokenizer

_TOKENIZER = embedded_tokenizer()
_OPTIONS = QualityOptions(
    chunk=64,
    recall=RecallOptions(lengths=[120], depths=[0.5], trials=4, facts=1, question_first=False),
    rag=RagQualityOptions(prompts=20, chunks=120, chunk_tokens=64, chunks_per_query=3, answer_tokens=16),
    summary=SummaryQualityOptions(documents=10, prompt_tokens=200, facts=2, answer_tokens=16),
    reasoning=ReasoningOptions(grades=[1, 2], items=15, choices=3, prompt_tokens=40),
)
_SHARES = ("recall", "rag", "rag_options", "summary", "summary_options", "reasoning")


def _facts(prompt: str) -> dict[str, str]:
    return dict(re.findall(r"access code of project ([\w ]+) is (\d+)\.", prompt))


def _from_the_prompt(prompt: str) -> str:
    """An answer in words that a reader of the prompt would give."""
    facts = _facts(prompt)
    if asked := re.findall(r"What is the access code of project ([\w ]+)\?", prompt):
        return f" {facts[asked[-1]]}."
    return ", ".join(facts.values())


def _likely(prompt: str) -> bool:
    """Whether a reader of the prompt would hold its end for true."""
    if found := re.search(r"access code of project ([\w ]+) is (\d+)$", prompt):
        return _facts(prompt[: found.start()])[found[1]] == found[2]
    if found := re.search(r"The value of (\w) is (\d+)$", prompt):
        values: dict[str, str] = {}
        for name, given in re.findall(r"^([A-Z]) = (.+)$", prompt, re.MULTILINE):
            values[name] = values[given] if given in values else str(eval(given))  # the test's own digits
        return values[found[1]] == found[2]
    raise ValueError(f"no question: {prompt!r}")


class _Server(QuietHandler):
    """Completions of token ids; `knows`: from the prompt, else by guessing."""

    knows = True
    protocol_version = "HTTP/1.1"
    chance = random.Random(0)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        prompt = _TOKENIZER.decode(body["prompt"])
        choice: dict[str, Any] = {"index": 0, "text": self._text(prompt), "finish_reason": "length"}
        if body.get("echo"):
            values = [None, *[-1.0] * (len(body["prompt"]) - 2), self._last(prompt), -1.0]
            choice["logprobs"] = {"token_logprobs": values}
        data = json.dumps({"choices": [choice]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _text(self, prompt: str) -> str:
        if self.knows:
            return _from_the_prompt(prompt)
        codes = list(_facts(prompt).values())
        copies = "What is the access code" in prompt and len(codes) > 1
        return codes[0] if copies else str(self.chance.randrange(10_000, 100_000))

    def _last(self, prompt: str) -> float:
        if self.knows:
            return -0.1 if _likely(prompt) else -1.0
        return -self.chance.random()


class _Guessing(_Server):
    knows = False


@pytest.fixture(scope="module")
def knowing() -> dict[str, Any]:
    return _measured(_Server)


@pytest.fixture(scope="module")
def guessing() -> dict[str, Any]:
    return _measured(_Guessing)


def _measured(handler: type[BaseHTTPRequestHandler], logprobs: bool = True) -> dict[str, Any]:
    with served(handler) as address:
        backend = endpoint(address, prompt_logprobs=logprobs)
        where = Endpoint(address, "a-model")
        return measure_quality(_OPTIONS, backend, where, _TOKENIZER, 0, lambda words: None).figures


@pytest.mark.parametrize("name", _SHARES)
def test_who_answers_from_the_prompt_is_always_right(knowing: dict[str, Any], name: str):
    assert set(knowing[f"{name}_right"]) == {1}
    assert (knowing[name], knowing[f"{name}_above_chance"]) == (1.0, True)


@pytest.mark.parametrize("name", _SHARES)
def test_who_guesses_is_at_chance(guessing: dict[str, Any], name: str):
    chance = {"rag": 1 / 3, "rag_options": 1 / 3, "summary_options": 1 / 2, "reasoning": 1 / 3}.get(name, 0.0)
    low, high = guessing[f"{name}_interval"]
    assert guessing[f"{name}_chance"] == pytest.approx(chance)
    assert low <= chance <= high
    assert guessing[f"{name}_above_chance"] is False


def test_every_figure_has_the_keys_that_are_promised(knowing: dict[str, Any]):
    for figure in QUALITY_FIGURES:
        if figure.chance is None:
            continue
        for path in (figure.path, figure.interval, figure.chance, figure.items):
            assert path.removeprefix("quality.") in knowing
        items = knowing[figure.items.removeprefix("quality.")]
        assert len(items) == knowing[f"{figure.path.removeprefix('quality.')}_items"]


def test_reasoning_is_also_told_by_kind_and_grade(knowing: dict[str, Any]):
    kinds = [(kind, grade) for kind in ("variables", "arithmetic") for grade in (1, 2)]
    assert knowing["reasoning_cells"] == [
        {"kind": kind, "grade": grade, "right": 15, "of": 15} for kind, grade in kinds
    ]
    assert knowing["reasoning_items"] == 60


def test_without_a_route_to_log_probabilities_what_is_written_is_still_judged():
    found = _measured(_Server, logprobs=False)
    assert (found["rag"], found["summary"]) == (1.0, 1.0)
    for name in ("rag_options", "summary_options", "reasoning"):
        assert found[name] is None
        assert "no prompt log-probabilities" in found[f"{name}_reason"]
        assert f"{name}_right" not in found
