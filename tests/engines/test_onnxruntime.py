"""ONNX Runtime with int8 keys and values; what every engine must do is the conformance suite's, with f32."""

import asyncio
import math
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import pytest

from harness.core.errors import EngineError
from harness.core.metric_names import KV_RESERVED_BYTES, KV_USED_BYTES, REQUESTS_RUNNING
from harness.core.model_store import ModelFiles
from tests.support.backends import onnxruntime
from tests.support.completions import stream, whole
from tests.support.model import embedded_model
from tests.support.served import Served, serving

pytestmark = pytest.mark.engine
_COMPLETIONS = "/v1/completions"
_GPL = Path("/usr/share/common-licenses/GPL-3")
_TOKEN = 2 * 30 * 3 * 64  # bytes of a token's int8 keys and values
_POOL = 2048  # tokens


@pytest.fixture(scope="module")
def model() -> ModelFiles:
    return embedded_model()


@pytest.fixture(scope="module")
def served(model: ModelFiles, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A pool of one full request, so that eight short ones have to wait for room."""
    backend = onnxruntime(kv_dtype="int8", context_length=_POOL, kv_bytes=_POOL * _TOKEN)
    try:
        backend.check(model)
    except EngineError as error:
        pytest.fail(f"the engine suite lacks ONNX Runtime. {error}", pytrace=False)
    backend.prepare(model, print)
    with serving(backend, model, tmp_path_factory.mktemp("onnxruntime") / "engine.log") as running:
        yield running


@pytest.fixture
async def client(served: Served) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(served.base_url) as session:
        yield session


async def _metrics(served: Served, client: aiohttp.ClientSession) -> dict[str, float]:
    async with client.get("/metrics") as response:
        return served.backend.common_metrics(await response.text())


async def test_perplexity_through_the_quantised_cache_is_near_the_reference(
    client: aiohttp.ClientSession, model: ModelFiles
) -> None:
    if not _GPL.is_file():
        pytest.skip(f"the reference text {_GPL} is part of Debian and is not on this machine")
    ids = model.tokenizer().encode(_GPL.read_text()[:6000])
    answer = await whole(client, _COMPLETIONS, prompt=ids, echo=True, logprobs=1, max_tokens=0)
    first, *values = answer["choices"][0]["logprobs"]["token_logprobs"]
    assert first is None
    assert len(values) == 1319
    found = math.exp(-sum(values) / 1319)
    assert found == pytest.approx(19.578, rel=0.01)  # transformers in float32


async def test_staggered_requests_of_ragged_lengths_give_the_tokens_of_one_at_a_time(
    client: aiohttp.ClientSession, model: ModelFiles
) -> None:
    """Together they need more rows than the pool has, so some wait and the rows are laid out again and again."""
    text = Path(asyncio.__file__).read_text()
    ids = model.tokenizer().encode(text * 4)
    prompts = [ids[:size] for size in (1, 40, 400, 65, 129, 2, 200, 64)]

    async def ask(prompt: list[int], delay: float = 0.0) -> list[int]:
        await asyncio.sleep(delay)
        tokens = 6 + len(prompt) % 5
        return (
            await stream(
                client, _COMPLETIONS, prompt=prompt, max_tokens=tokens, temperature=0, ignore_eos=True
            )
        ).ids

    alone = [await ask(prompt) for prompt in prompts]
    together = await asyncio.gather(*(ask(prompt, 0.05 * n) for n, prompt in enumerate(prompts)))
    assert list(together) == alone


async def test_a_client_that_leaves_frees_its_row(
    served: Served, client: aiohttp.ClientSession, model: ModelFiles
) -> None:
    ids = model.tokenizer().encode("It is a long way. " * 20)
    body = {"prompt": ids, "max_tokens": 1500, "ignore_eos": True, "stream": True}
    async with client.post(_COMPLETIONS, json=body) as response:
        async for _ in response.content:
            break
        busy = await _metrics(served, client)
    assert busy[REQUESTS_RUNNING] == 1
    assert busy[KV_RESERVED_BYTES] == _POOL * _TOKEN
    assert busy[KV_USED_BYTES] % _TOKEN == 0
    assert len(ids) * _TOKEN <= busy[KV_USED_BYTES] < _POOL * _TOKEN
    for _ in range(200):
        if (await _metrics(served, client))[KV_USED_BYTES] == 0:
            return
        await asyncio.sleep(0.05)
    raise AssertionError("the row of a request that nobody reads is still held")
