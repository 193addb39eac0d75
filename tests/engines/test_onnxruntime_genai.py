"""onnxruntime-genai's generators in turns, on the CPU's provider: what CUDA is served with, where there is no GPU."""

import json
import math
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from backends.bridge import bridged_environment
from backends.environment import Recipe
from backends.onnxruntime.adapter import OnnxRuntimeBackend
from backends.onnxruntime.export import CONVERTER, export
from harness.core.model_store import ModelFiles
from tests.support import onnxruntime_requests
from tests.support.model import embedded_model

pytestmark = pytest.mark.engine
_GPL = Path("/usr/share/common-licenses/GPL-3")
_SIZES = (1, 40, 200, 65, 2)


@pytest.fixture(scope="module")
def model() -> ModelFiles:
    return embedded_model()


@pytest.fixture(scope="module")
def folder(model: ModelFiles) -> Path:
    if not CONVERTER.installed():
        pytest.fail(
            "the engine suite lacks ONNX Runtime's converter. Type: "
            "python -m harness.engines action=install engine=onnxruntime",
            pytrace=False,
        )
    return export(model, "f32", None, "cpu", print)


@pytest.fixture(scope="module")
def plan(model: ModelFiles, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not _GPL.is_file():
        pytest.skip(f"the reference text {_GPL} is part of Debian and is not on this machine")
    ids = model.tokenizer().encode(_GPL.read_text()[:6000])
    path = tmp_path_factory.mktemp("plan") / "plan.json"
    prompts = [ids[10 * number :][:size] for number, size in enumerate(_SIZES)]
    path.write_text(json.dumps({"prompts": prompts, "text": ids}))
    return path


def _run(recipe: Recipe, kind: str, folder: Path, plan: Path) -> subprocess.CompletedProcess[str]:
    program = str(onnxruntime_requests.__file__)
    return subprocess.run(
        [str(recipe.python()), "-P", program, kind, str(folder), str(plan)],
        env={**os.environ, **bridged_environment()},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def told(folder: Path, plan: Path) -> dict[str, Any]:
    done = _run(CONVERTER, "genai-cpu", folder, plan)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_staggered_requests_give_the_tokens_of_one_at_a_time_and_of_the_bound_engine(
    told: dict[str, Any], folder: Path, plan: Path
) -> None:
    assert told["staggered"] == told["alone"]
    assert [len(ids) for ids in told["alone"]] == [12 + number for number in range(len(_SIZES))]
    done = _run(OnnxRuntimeBackend.recipes["cpu"], "bound", folder, plan)
    assert done.returncode == 0, done.stderr
    bound = json.loads(done.stdout)
    assert told["alone"] == bound["alone"]
    for mine, theirs in zip(told["logprobs"], bound["logprobs"], strict=True):
        assert mine == pytest.approx(theirs, abs=1e-3)


def test_no_more_than_the_pool_is_set_aside_and_no_more_run_than_may(told: dict[str, Any]) -> None:
    """The third has no room at step 4, before the long one is given up; the fifth no place at step 8."""
    assert [running for running, _, _ in told["seen"][4:10]] == [3, 3, 3, 4, 4, 4]
    assert max(running for running, _, _ in told["seen"]) == 4
    assert max(used for _, used, _ in told["seen"]) > 0
    assert all(used <= aside <= told["pool"] for _, used, aside in told["seen"])


def test_one_that_is_given_up_ends_there_and_nothing_is_left(told: dict[str, Any]) -> None:
    assert 0 < told["given_up"] < 1200
    assert 99 not in told["order"]
    assert sorted(told["order"]) == list(range(len(_SIZES)))
    assert set(told["left"].values()) == {0}


def test_prompt_log_probabilities_give_the_reference_perplexity(told: dict[str, Any]) -> None:
    first, *values = told["prompt"]
    assert first is None
    assert len(values) == 1319
    assert math.exp(-sum(values) / 1319) == pytest.approx(19.578, rel=1e-3)  # transformers in float32


def test_cuda_that_is_not_there_is_an_error_not_the_cpu(folder: Path, plan: Path) -> None:
    done = _run(CONVERTER, "genai-cuda", folder, plan)
    assert done.returncode == 1, done.stderr
    assert "no CUDAExecutionProvider, and the CPU is not taken instead" in done.stderr
    assert "action=install engine=onnxruntime device=cuda" in done.stderr
    assert done.stdout == ""
