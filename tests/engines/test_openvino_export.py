"""The default model with weights of another precision, exported as a run would: `make test-engines ENGINES=openvino`.

Apart from `make test`, since the exporter's environment takes minutes and gigabytes where it is not there.
"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from harness.core.model_store import ModelFiles
from tests.support.backends import openvino
from tests.support.completions import whole

pytestmark = pytest.mark.engine
_GPL = Path("/usr/share/common-licenses/GPL-3")


@pytest.fixture
def wanted(request: pytest.FixtureRequest) -> None:
    if "openvino" not in (request.config.getoption("--engines") or "").split(","):
        pytest.skip("the exporter's environment is gigabytes: make test-engines ENGINES=openvino")


@pytest.mark.usefixtures("wanted")
@pytest.mark.parametrize(("weight_dtype", "perplexity"), [("f32", 19.578), ("int8", 19.749)])
async def test_perplexity_of_exported_weights(
    serve: Callable[..., Any], model: ModelFiles, tmp_path: Path, weight_dtype: str, perplexity: float
) -> None:
    """f32 is the model itself; int8 is 0.9 % above it, as rounding weights row by row makes it."""
    if not _GPL.is_file():
        pytest.skip(f"the reference text {_GPL} is part of Debian and is not on this machine")
    openvino(weight_dtype=weight_dtype, install=True).prepare(model, print)
    ids = model.tokenizer().encode(_GPL.read_text()[:6000])
    with serve(tmp_path / "engine.log", weight_dtype=weight_dtype) as served:
        async with aiohttp.ClientSession(served.base_url) as client:
            body = {"prompt": ids, "echo": True, "logprobs": 1, "max_tokens": 0}
            answer = await whole(client, "/v1/completions", **body)
    logprobs = answer["choices"][0]["logprobs"]["token_logprobs"]
    assert math.exp(-sum(logprobs[1:]) / (len(ids) - 1)) == pytest.approx(perplexity, rel=0.005)
