"""What every engine must do, whatever it is: one suite, run against each of them.

`--engines NAME,NAME` says which (by default all that start in seconds). Every test but those marked another_start
asks one engine, which a run of the harness started and holds; the last of them kills it.
"""

import asyncio
import math
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pandas as pd
import psutil
import pytest

from backends.base import Endpoint
from backends.http_calls import post_json
from backends.registry import make_backend
from harness.core import metric_names as names
from harness.core.errors import EngineError, UsageError
from harness.core.model_store import ModelFiles
from harness.quality.asking import next_token_log_probs
from tests.support.command_line import leftovers, records, run
from tests.support.completions import Answer, stream, whole
from tests.support.conformance import (
    Held,
    Subject,
    chosen,
    holding,
    refusals,
    starting,
)
from tests.support.model import embedded_model
from tests.support.processes import command_of
from tests.support.waiting import gone, wait_until

pytestmark = pytest.mark.engine
_COMPLETIONS, _CHAT = "/v1/completions", "/v1/chat/completions"
_GPL = Path("/usr/share/common-licenses/GPL-3")
_REFERENCE_PERPLEXITY = 19.578  # transformers, float32 arithmetic over the bfloat16-rounded weights
_KV_BYTES_PER_TOKEN = 46080  # 2 · 30 layers · 3 heads · 64 · 4 bytes


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "subject" in metafunc.fixturenames:
        option = metafunc.config.getoption
        try:
            subjects = chosen(option("--engines"), option("--engine-python"))
        except ValueError as error:
            raise pytest.UsageError(str(error)) from error
        metafunc.parametrize("subject", subjects, ids=[one.name for one in subjects], scope="module")


@pytest.fixture(scope="module")
def model() -> ModelFiles:
    return embedded_model()


@pytest.fixture(scope="module")
def installed(subject: Subject, model: ModelFiles) -> Subject:
    """The subject once its engine is known to be there; a missing one fails, with the command that brings it."""
    try:
        make_backend(subject.config().backend).check(model)
    except EngineError as error:
        pytest.fail(f"the engine suite lacks {subject.name}. {error}", pytrace=False)
    return subject


@pytest.fixture(scope="module")
def held(installed: Subject, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Held]:
    started = time.monotonic()
    with holding(installed, tmp_path_factory.mktemp(installed.name)) as held:
        print(f"\n{installed.name} answered {time.monotonic() - started:.0f} s after its start")
        yield held


@pytest.fixture
async def client(held: Held) -> AsyncIterator[aiohttp.ClientSession]:
    patience = aiohttp.ClientTimeout(total=600)
    async with aiohttp.ClientSession(held.base_url, timeout=patience) as session:
        yield session


def _body(held: Held, **fields: Any) -> dict[str, Any]:
    return {"model": held.config.model.name, "temperature": 0, **fields}


async def _ask(held: Held, client: aiohttp.ClientSession, ids: list[int], tokens: int) -> Answer:
    fields = _body(held, prompt=ids, max_tokens=tokens, min_tokens=tokens, ignore_eos=True)
    return await stream(client, _COMPLETIONS, **fields)


def _prompt(model: ModelFiles, tokens: int, seed: int) -> list[int]:
    """Real text of exactly this many tokens; different seeds share no prefix."""
    text = Path(asyncio.__file__).with_name("base_events.py").read_text()
    return model.tokenizer().encode(text[seed * 997 :])[:tokens]


async def test_completions_stream_exactly_what_was_asked_for(
    held: Held, client: aiohttp.ClientSession, model: ModelFiles
) -> None:
    ids = _prompt(model, 150, 1)
    answer = await _ask(held, client, ids, 24)
    assert answer.usage["prompt_tokens"] == 150
    assert answer.usage["completion_tokens"] == 24
    assert answer.done
    reasons = [choice.get("finish_reason") for choice in answer.choices]
    assert [reason for reason in reasons if reason] == ["length"]
    if held.backend.capabilities().return_token_ids:
        assert len(_ids(answer)) == 24


def _ids(answer: Answer) -> list[int]:
    return [token for choice in answer.choices for token in choice.get("token_ids") or ()]


async def test_chat_streams_the_capital_of_france(held: Held, client: aiohttp.ClientSession) -> None:
    question = [{"role": "user", "content": "What is the capital of France?"}]
    # Ids of a streamed chat are no engine's promise: SGLang refuses to be asked for them.
    asked = _body(held, messages=question, max_tokens=40, return_token_ids=False)
    answer = await stream(client, _CHAT, **asked)
    said = "".join(choice["delta"].get("content") or "" for choice in answer.choices)
    assert "The capital of France is Paris" in said
    assert [c["finish_reason"] for c in answer.choices if c.get("finish_reason")] == ["stop"]
    assert answer.usage["completion_tokens"] < 40


async def test_greedy_answers_repeat_themselves(
    held: Held, client: aiohttp.ClientSession, model: ModelFiles
) -> None:
    ids = _prompt(model, 80, 2)
    texts = [(await _ask(held, client, ids, 16)).text for _ in range(2)]
    assert texts[0]
    assert texts[0] == texts[1]


async def test_prompt_log_probabilities_give_the_reference_perplexity(
    held: Held, client: aiohttp.ClientSession, model: ModelFiles
) -> None:
    if not held.backend.capabilities().prompt_logprobs:
        assert held.backend.capabilities().no_logprobs, "an engine without this route says why"
        return
    if not _GPL.is_file():
        pytest.skip(f"the reference text {_GPL} is part of Debian and is not on this machine")
    ids = model.tokenizer().encode(_GPL.read_text()[:6000])
    assert len(ids) == 1320
    fields = _body(held, prompt=ids, echo=True, logprobs=1, max_tokens=1)
    answer = await whole(client, _COMPLETIONS, **fields)
    first, *values = answer["choices"][0]["logprobs"]["token_logprobs"][:1320]
    assert first is None
    assert len(values) == 1319
    assert all(math.isfinite(value) and value <= 0 for value in values)
    found = math.exp(-sum(values) / len(values))
    assert found == pytest.approx(_REFERENCE_PERPLEXITY, rel=held.subject.perplexity)


async def test_what_is_told_beside_a_prompt_token_belongs_to_one_distribution(
    held: Held, client: aiohttp.ClientSession, model: ModelFiles
) -> None:
    able = held.backend.capabilities()
    if not able.prompt_logprobs:
        return
    ids, wanted = _prompt(model, 40, 3), min(8, able.prompt_alternatives)
    endpoint = Endpoint(held.base_url, held.config.model.name)
    told = await asyncio.to_thread(
        next_token_log_probs, endpoint, model.tokenizer(), ids, wanted, able.return_token_ids
    )
    assert told[0] == {}
    for token, known in zip(ids[1:], told[1:], strict=True):
        assert token in known
        assert sum(map(math.exp, known.values())) <= 1.001
        assert len(known) >= wanted - 1  # named by its text, one may be another's too


async def _seen(held: Held, client: aiohttp.ClientSession, tasks: list["asyncio.Task[Any]"]) -> pd.DataFrame:
    """Its metrics, looked at again and again until the tasks are done."""
    rows = []
    while not all(task.done() for task in tasks):
        rows.append(await held.metrics(client))
        await asyncio.sleep(0.05)
    await asyncio.gather(*tasks)
    return pd.DataFrame(rows)


async def _until_idle(held: Held, client: aiohttp.ClientSession) -> dict[str, float]:
    for _ in range(600):
        metrics = await held.metrics(client)
        busy = [metrics.get(name, 0) for name in (names.REQUESTS_RUNNING, names.REQUESTS_WAITING)]
        if not any(busy) and metrics.get(names.KV_USED_BYTES, 0) < 0.01 * metrics.get(
            names.KV_RESERVED_BYTES, 1
        ):
            return metrics
        await asyncio.sleep(0.05)
    raise AssertionError(f"never idle again: {metrics}")


async def test_metrics_tell_of_the_load_and_of_its_end(
    held: Held, client: aiohttp.ClientSession, model: ModelFiles
) -> None:
    before = await _until_idle(held, client)
    asked = [asyncio.create_task(_ask(held, client, _prompt(model, 256, 3 + n), 40)) for n in range(4)]
    seen = await _seen(held, client, asked)
    after = await _until_idle(held, client)
    assert seen[names.REQUESTS_RUNNING].max() > 1
    if names.KV_USED_BYTES in seen:
        assert 0 < seen[names.KV_USED_BYTES].max() <= seen[names.KV_RESERVED_BYTES].max()
        asked_for = held.config.backend.kv_bytes or 0
        assert 0.95 * asked_for < after[names.KV_RESERVED_BYTES] <= asked_for
    for name, tokens in ((names.PROMPT_TOKENS, 4 * 256), (names.GENERATED_TOKENS, 4 * 40)):
        if name in after:
            assert after[name] - before[name] == tokens


async def test_requests_beyond_the_most_at_once_wait_and_are_answered(
    held: Held, client: aiohttp.ClientSession, model: ModelFiles
) -> None:
    most = held.config.backend.max_running or 0
    await _until_idle(held, client)
    asked = [asyncio.create_task(_ask(held, client, _prompt(model, 32, 30 + n), 32)) for n in range(most + 4)]
    seen = await _seen(held, client, asked)
    assert 1 < seen[names.REQUESTS_RUNNING].max() <= most
    assert 1 <= seen[names.REQUESTS_WAITING].max() <= most + 4
    assert all(task.result().usage["completion_tokens"] == 32 for task in asked)
    after = await _until_idle(held, client)
    assert after[names.REQUESTS_WAITING] == 0


async def test_kv_bytes_of_a_token_are_those_of_geometry(
    held: Held, client: aiohttp.ClientSession, model: ModelFiles
) -> None:
    """The slope between two lengths that fill whole blocks of any size up to 256 tokens."""

    async def most(tokens: int, seed: int) -> float:
        await _until_idle(held, client)
        task = asyncio.create_task(_ask(held, client, _prompt(model, tokens, seed), 24))
        seen = await _seen(held, client, [task])
        return float(seen[names.KV_USED_BYTES].max())

    if names.KV_USED_BYTES not in await held.metrics(client):
        assert "onnxruntime" in held.subject.name, "only an engine without a gauge may lack it"
        return
    slope = (await most(768, 9) - await most(256, 10)) / 512
    assert slope == pytest.approx(_KV_BYTES_PER_TOKEN * held.subject.kv_overhead, rel=0.03)


async def _hits(held: Held, client: aiohttp.ClientSession, ids: list[int]) -> float:
    """Prompt tokens found in the prefix cache when the same prompt is asked twice."""
    before = (await held.metrics(client)).get(names.PREFIX_HIT_TOKENS, 0)
    texts = [(await _ask(held, client, ids, 8)).text for _ in range(2)]
    assert texts[0] == texts[1]
    await _until_idle(held, client)
    return (await held.metrics(client)).get(names.PREFIX_HIT_TOKENS, 0) - before


async def test_the_prefix_cache_is_as_it_was_asked_for(
    held: Held, client: aiohttp.ClientSession, model: ModelFiles
) -> None:
    await _check_prefix_cache(held, client, model)


async def _check_prefix_cache(held: Held, client: aiohttp.ClientSession, model: ModelFiles) -> None:
    ids = _prompt(model, 600, 20)
    found = await _hits(held, client, ids)
    if not held.config.backend.prefix_cache:
        assert found == 0
        return
    if held.subject.tells_prefix_hits:
        assert 512 <= found < 600
    reset = held.backend.cache_reset()
    if reset is not None:
        async with client.post(reset) as response:
            assert response.status == 200
        before = (await held.metrics(client)).get(names.PREFIX_HIT_TOKENS, 0)
        await _ask(held, client, ids, 8)
        assert (await held.metrics(client)).get(names.PREFIX_HIT_TOKENS, 0) == before


@pytest.mark.parametrize("api", ["completions", "chat"])
def test_a_run_that_attaches_to_it_is_valid(held: Held, tmp_path: Path, api: str) -> None:
    load = ["load.concurrency=2", "load.requests=6", "load.warmup=1", "hardware.drift_limit=null"]
    lengths = ["workload.turns=1", "workload.prompt_tokens=96", "workload.output_tokens=12"]
    attach = [f"backend.base_url={held.base_url}", f"backend.api={api}"]
    reset = held.backend.cache_reset()
    if reset is not None:  # the other API's run asked the same prompts, and cached ones rightly spoil a run
        assert post_json(held.base_url + reset, {}, {}, 60).status == 200
    done = run(["harness", *held.subject.arguments(*attach), *load, *lengths], tmp_path)
    assert done.status == 0, done.err
    (record,) = records(tmp_path / "results")
    assert record["status"] == "complete"
    failed = {check["check"] for check in record["validity"] if check["ok"] is False}
    # Machine and statistics are not the engine's: other processes, and few requests.
    assert not failed & {
        "no_errors",
        "output_lengths",
        "token_counts",
        "prompt_lengths",
        "warmup_errors",
        "warmup_overlap",
        "foreign_cache_hits",
        "memory_samples",
    }
    lengths_found = record["summary"]["requests"]
    assert lengths_found["ok"] == 6


def test_the_engines_own_parser_takes_every_launch_line(installed: Subject, model: ModelFiles) -> None:
    backends = [make_backend(installed.config(*more).backend) for more in installed.others]
    specs = [spec for backend in backends if (spec := backend.launch(model, 12345, 2)) is not None]
    assert len(specs) == len(installed.others)
    # The last line, once more with a flag that no engine has: a parser that takes everything would show nothing.
    wrong = replace(specs[-1], argv=(*specs[-1].argv, "--no-such-flag"))
    *found, refused = refusals(installed, [*specs, wrong])
    assert found == [""] * len(specs)
    assert refused


def test_ctrl_c_while_it_starts_leaves_no_process(installed: Subject, tmp_path: Path) -> None:
    with starting(installed, tmp_path) as held:

        def engine() -> list[psutil.Process]:
            found = psutil.Process(held.process.pid).children(recursive=True)
            return found if any("supervisor.py" in " ".join(command_of(p)) for p in found) else []

        wait_until(
            lambda: held.process.poll() is not None or len(engine()) >= 2, "the engine's process starts", 120
        )
        _interrupt(held)


@pytest.mark.another_start
async def test_ctrl_c_while_it_answers_leaves_no_process_and_a_partial_record(
    installed: Subject, model: ModelFiles, tmp_path: Path
) -> None:
    """On a start of its own, which has the prefix cache the other way where the engine can do both."""
    other = f"backend.prefix_cache={str(not installed.prefix_cache).lower()}"
    switched = make_backend(installed.config(other).backend)
    can_both = switched.capabilities().prefix_cache
    if not can_both:
        with pytest.raises(UsageError, match="prefix_cache"):
            switched.check(model)
    with holding(installed, tmp_path, *([other] if can_both else [])) as held:
        if can_both:
            async with aiohttp.ClientSession(held.base_url) as client:
                await _check_prefix_cache(held, client, model)
        _interrupt(held)
    (record,) = records(tmp_path / "results")
    assert record["status"] == "partial"
    assert record["summary"]["requests"]["ok"] == 1
    assert leftovers(tmp_path / "results") == []


def _interrupt(held: Held) -> None:
    held.must_run()
    family = psutil.Process(held.process.pid).children(recursive=True)
    held.process.send_signal(signal.SIGINT)
    _, err = held.process.communicate(timeout=120)
    assert held.process.returncode == 130, err
    assert all(gone(process.pid) for process in family)


def test_an_engine_that_is_killed_is_reported_and_its_run_is_partial(held: Held) -> None:
    """The last one: it ends the engine that all the others asked."""
    held.computing().send_signal(signal.SIGKILL)
    try:
        _, err = held.process.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        pytest.fail("the run did not notice that its engine was killed")
    assert held.process.returncode == 1, err
    assert "The engine ended while it was measured" in err
    (record,) = records(held.results)
    assert record["status"] == "partial"
    assert record["summary"]["requests"]["ok"] >= 1
    assert {check["check"]: check["ok"] for check in record["validity"]}["engine_alive"] is False
    assert str(held.config.backend.port) in record["launch"]["speed"]
    assert leftovers(held.results) == []
    assert all(gone(process.pid) for process in held.family)
    folder = held.results / "runs" / record["id"]
    assert orjson.loads((folder / "run.json").read_bytes())["reason"]
    # Most of its requests were due hours later: nobody waited for those that no engine would answer.
    assert len(pd.read_parquet(folder / "requests.parquet")) < held.config.workload.requests
    if not held.subject.heavy:  # the words of this project's own server
        assert "signal 9" in (folder / "engine.log").read_text()
