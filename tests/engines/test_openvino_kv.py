"""What OpenVINO's KV cache holds, read from the library's own gauge, in one process without a server."""

import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from backends.openvino.precision import kv_bytes_per_token
from backends.serving.engine import EngineConfig, RequestOutput, Sampling
from harness.core.metric_names import KV_USED_BYTES
from harness.core.model_store import ModelFiles

pytestmark = pytest.mark.engine
_BLOCK = 32
# 2 tensors of 30 layers, 3 KV heads, 64 values; int8 adds a scale and a zero point of 4 bytes each to every token's
# value vector, and to every key channel of a block of 32 tokens.
_PER_TOKEN = {"f32": 46080, "f16": 23040, "int8": 11520 + 30 * 3 * 8 + 30 * 3 * 8 * 64 / 32}
Load = Callable[..., Any]


def _config(model: ModelFiles, kv_dtype: str, own: dict[str, Any] | None = None) -> EngineConfig:
    return EngineConfig(
        model=Path(model.weights),
        eos_ids=(),
        device="CPU",
        dtype="f32",
        kv_dtype=kv_dtype,
        context_length=2048,
        max_running=8,
        kv_bytes=100_000_000,
        prefix_cache=False,
        prefill_chunk=256,
        threads=2,
        seed=0,
        kv_bytes_per_token=kv_bytes_per_token(model.geometry, kv_dtype),
        own=own,
    )


@pytest.fixture(scope="session")
def load(model: ModelFiles) -> Load:
    """Loads the engine with the options given, and closes it."""
    from backends.openvino.engine import load as load_engine

    @contextmanager
    def loading(kv_dtype: str, own: dict[str, Any] | None = None) -> Iterator[Any]:
        with closing(load_engine(_config(model, kv_dtype, own))) as engine:
            yield engine

    return loading


def _answer(engine: Any, ids: list[int], tokens: int) -> tuple[list[RequestOutput], list[float]]:
    """Outputs of one request, with the prompt's log-probabilities, and the bytes used after each step."""
    engine.add(0, ids, Sampling(tokens, 0, True, 0, 1, 0, logprobs=True, prompt_logprobs=True))
    outputs: list[RequestOutput] = []
    used: list[float] = []
    while engine.has_work():
        outputs += engine.step()
        used.append(engine.gauges()[KV_USED_BYTES])
    return outputs, used


@pytest.mark.parametrize("kv_dtype", _PER_TOKEN)
def test_bytes_of_a_token_are_those_of_the_models_geometry(
    load: Load, model: ModelFiles, kv_dtype: str
) -> None:
    """The slope between two lengths of whole blocks, so that what is not of the tokens cancels."""
    short, long = 10 * _BLOCK, 30 * _BLOCK
    with load(kv_dtype) as engine:
        peaks = [max(_answer(engine, [500] * length, 4)[1]) for length in (short, long)]
    slope = (peaks[1] - peaks[0]) / (long - short)
    assert slope == pytest.approx(_PER_TOKEN[kv_dtype], rel=0.03)
    assert kv_bytes_per_token(model.geometry, kv_dtype) == _PER_TOKEN[kv_dtype]


def test_eviction_begins_in_the_answer_and_is_not_seen_by_the_prompts_log_probabilities(
    load: Load, model: ModelFiles
) -> None:
    """What `logprobs_see_eviction=False` of the adapter says, measured."""
    kept = 8 * _BLOCK
    ids = model.tokenizer().encode(" ".join(f"{n} bottles of beer on the wall." for n in range(80)))[:640]
    assert len(ids) == 640
    with load("f32") as engine:
        whole, _ = _answer(engine, ids, 40)
    settings = {"keep": kept, "start": _BLOCK, "recent": 2 * _BLOCK, "scores": "norm_sum"}
    with load("f32", {"eviction": settings}) as engine:
        evicting, used = _answer(engine, ids, 40)
    assert evicting[0].prompt_logprobs == whole[0].prompt_logprobs
    # The second token is still computed upon all of the prompt; what is evicted is missing from the third on.
    logprobs = [[output.logprobs for output in outputs] for outputs in (whole, evicting)]
    assert logprobs[0][:2] == logprobs[1][:2]
    assert logprobs[0][2:] != logprobs[1][2:]
    block = _BLOCK * _PER_TOKEN["f32"]
    assert max(used) == (640 / _BLOCK + 1) * block
    # Whole blocks only, so that the block that is being filled comes on top.
    assert {bytes_ / block for bytes_ in used[-20:-1]} <= {8, 9}


def test_a_signal_after_the_engine_was_closed_is_handled(model: ModelFiles, tmp_path: Path) -> None:
    """OpenVINO sets signal stacks and frees them with its models; in a child, for a dangling one ends the process."""
    code = (
        "import faulthandler, os, pickle, signal, sys\n"
        "from backends.openvino.engine import load\n"
        "faulthandler.enable()\n"
        "signal.signal(signal.SIGUSR1, lambda *_: print('handled'))\n"
        "for _ in range(2):\n"
        "    load(pickle.load(open(sys.argv[1], 'rb'))).close()\n"
        "    os.kill(os.getpid(), signal.SIGUSR1)\n"
    )
    config = tmp_path / "config.pickle"
    config.write_bytes(pickle.dumps(_config(model, "f16")))
    child = subprocess.run([sys.executable, "-c", code, str(config)], capture_output=True, text=True)
    assert (child.returncode, child.stdout) == (0, "handled\n" * 2), child.stderr[-2000:]
