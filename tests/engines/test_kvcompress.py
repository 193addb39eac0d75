"""kvcompress with requests of different settings; in full f32 it is the conformance suite's."""

import asyncio
import math
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from harness.core.errors import EngineError
from harness.core.metric_names import KV_USED_BYTES
from harness.core.model_store import ModelFiles
from tests.support.backends import kvcompress
from tests.support.completions import stream, whole
from tests.support.model import embedded_model
from tests.support.served import Served, serving

pytestmark = pytest.mark.engine
_COMPLETIONS = "/v1/completions"
_GPL = Path("/usr/share/common-licenses/GPL-3")
_INT4 = {"quant": "int4", "rotate": True}
_HALF = {"evict": "h2o", "budget": {"fraction": 0.5}}


@pytest.fixture(scope="module")
def model() -> ModelFiles:
    return embedded_model()


@pytest.fixture(scope="module")
def served(model: ModelFiles, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Everything kept in f32, unless a request says otherwise."""
    backend = kvcompress(context_length=2048, kv_bytes=300_000_000)
    try:
        backend.check(model)
    except EngineError as error:
        pytest.fail(f"the engine suite lacks kvcompress. {error}", pytrace=False)
    backend.prepare(model, print)
    with serving(backend, model, tmp_path_factory.mktemp("kvcompress") / "engine.log") as running:
        yield running


@pytest.fixture
async def client(served: Served) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(served.base_url) as session:
        yield session


async def test_a_request_says_how_its_cache_is_held_and_its_perplexity_shows_it(
    client: aiohttp.ClientSession, model: ModelFiles
) -> None:
    if not _GPL.is_file():
        pytest.skip(f"the reference text {_GPL} is part of Debian and is not on this machine")
    ids = model.tokenizer().encode(_GPL.read_text()[:6000])

    async def perplexity(**kv: Any) -> float:
        more = {"kv": kv} if kv else {}
        answer = await whole(client, _COMPLETIONS, prompt=ids, echo=True, logprobs=1, max_tokens=0, **more)
        values = answer["choices"][0]["logprobs"]["token_logprobs"][1:]
        assert len(values) == 1319
        return math.exp(-sum(values) / 1319)

    full, packed, evicted = await perplexity(), await perplexity(**_INT4), await perplexity(**_HALF)
    assert full == pytest.approx(19.578, rel=0.001)  # transformers in float32
    assert packed != full
    assert packed == pytest.approx(full, rel=0.05)
    assert evicted != full
    assert evicted == pytest.approx(full, rel=0.15)


async def test_what_a_request_holds_is_what_its_setting_leaves(
    served: Served, client: aiohttp.ClientSession, model: ModelFiles
) -> None:
    ids = model.tokenizer().encode("It is a long way to go. " * 80)[:512]

    async def most(**kv: Any) -> float:
        task = asyncio.create_task(
            stream(client, _COMPLETIONS, prompt=ids, max_tokens=24, ignore_eos=True, temperature=0, kv=kv)
        )
        held = 0.0
        while not task.done():
            held = (await served.metrics(client))[KV_USED_BYTES]
            found.append(held)
            await asyncio.sleep(0.01)
        assert len((await task).ids) == 24
        return max(found)

    sizes = []
    for kv in ({"evict": "none"}, _HALF, _INT4):
        found: list[float] = []
        sizes.append(await most(**kv))
    full, half, packed = sizes
    # A page has the size of 32 slots of 8 bits; of exact ones it holds 8, and a rest.
    assert full == pytest.approx(1.049 * 536 * 46080, rel=0.02)
    assert half < 0.6 * full
    assert packed < 0.35 * full


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("kv", "words"),
    [
        ({"evict": "h2oo", "budget": {"tokens": 4}}, "kv.evict=h2oo is unknown"),
        ({"evict": "h2o"}, "kv.evict=h2o needs a budget"),
        ({"quants": "int4"}, "kv does not know quants"),
        ({"quant": "int4", "granularity": "group", "group": 48}, "does not divide the 64 values of a head"),
    ],
)
async def test_a_wrong_setting_is_a_400_with_one_sentence(
    client: aiohttp.ClientSession, kv: dict[str, Any], words: str, streamed: bool
) -> None:
    body = {"prompt": [1, 2], "max_tokens": 2, "kv": kv, "stream": streamed}
    async with client.post(_COMPLETIONS, json=body) as response:
        assert response.status == 400
        error = (await response.json())["error"]
    assert words in error["message"]
    assert error["param"] == "kv"


async def test_requests_of_different_settings_do_not_change_each_other(
    client: aiohttp.ClientSession, model: ModelFiles
) -> None:
    text = model.tokenizer().encode(Path(asyncio.__file__).read_text() * 4)

    async def ask(size: int, kv: dict[str, Any]) -> list[int]:
        answer = await stream(
            client, _COMPLETIONS, prompt=text[:size], max_tokens=12, ignore_eos=True, temperature=0, kv=kv
        )
        return answer.ids

    asked = [(300, _INT4), (120, _HALF), (200, {"evict": "none"}), (64, _HALF)]
    alone = [await ask(*one) for one in asked]
    assert list(await asyncio.gather(*(ask(*one) for one in asked))) == alone
