"""The harness's side of OpenVINO: what it refuses, and what it starts."""

import sys
import venv
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from backends.openvino.precision import cpu_dtypes, kv_bytes_per_token
from backends.serving.engine import EngineConfig
from harness.core.errors import EngineError, UsageError
from harness.core.geometry import ModelGeometry
from harness.core.model_store import ModelFiles
from tests.support.backends import openvino

_GEOMETRY = ModelGeometry(layers=30, heads=9, kv_heads=3, head_dim=64, vocabulary=49152, context_length=8192)
_MODEL = ModelFiles("tiny", Path("/models/tiny.gguf"), Path("/models"), _GEOMETRY, "0")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"kv_dtype": "fp8"}, r"backend\.kv_dtype=fp8.*f32 or f16 or int8 or int4"),
        ({"kv_dtype": "bf16"}, r"backend\.kv_dtype=bf16"),
        ({"dtype": "int8"}, r"backend\.dtype=int8.*f32"),
        ({"tensor_parallel": 2}, r"backend\.tensor_parallel=2.*use 1"),
        ({"context_length": 8193}, "8192 positions"),
        ({"context_length": 0}, "at least 1"),
        ({"kv_bytes": 46080 * 5119}, r"backend\.kv_bytes=.* holds 5119 tokens.*5120"),
        ({"prefill_chunk": 7}, r"backend\.prefill_chunk=7.*max_running=8"),
        ({"prefix_cache": None}, r"backend\.prefix_cache=null"),
        ({"device": "npu"}, r"backend\.device=npu.*cpu or gpu"),
        ({"api": "grpc"}, "completions or chat"),
        ({"python": "/no/such/python"}, r"backend\.python=/no/such/python"),
    ],
)
def test_what_it_cannot_honour_is_named_with_the_choices(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        openvino(**changes).check(_MODEL)


def test_a_folder_needs_an_export(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="optimum-cli export openvino"):
        openvino().check(replace(_MODEL, weights=tmp_path))


def test_the_command_carries_every_setting_and_the_engine_side_takes_them_all() -> None:
    spec = openvino(threads=None, model_name="served", extra_args=["--more"]).launch(_MODEL, 1234, 5)
    assert spec is not None
    assert spec.argv[:4] == (sys.executable, "-P", "-m", "backends.serving")
    assert spec.argv[-1] == "--more"
    given = dict(zip(spec.argv[4:-1:2], spec.argv[5:-1:2], strict=True))
    assert (given["--port"], given["--model-name"], given["--model"]) == (
        "1234",
        "served",
        "/models/tiny.gguf",
    )
    config = EngineConfig.from_options(_MODEL.weights, (2,), orjson.loads(given["--options"]))
    assert (config.threads, config.kv_dtype, config.prefill_chunk, config.prefix_cache) == (
        5,
        "f32",
        64,
        False,
    )
    bridge = Path(spec.env["PYTHONPATH"].split(":")[0])
    assert {path.name for path in bridge.iterdir()} == {"backends", "harness"}
    assert (bridge / "backends" / "serving" / "__main__.py").is_file()


def test_options_that_are_missing_or_unknown_are_named() -> None:
    with pytest.raises(UsageError, match=r"lacks context_length.* and does not know speed"):
        EngineConfig.from_options(Path("/m"), (), {"device": "CPU", "speed": 3})


def test_kv_sizes_are_those_openvino_reserves() -> None:
    # The right-hand sides were read from the library's own `kv_cache_size_in_bytes` for 256 blocks of 32 tokens.
    assert kv_bytes_per_token(_GEOMETRY, "f16") == 188743680 / 256 / 32
    assert kv_bytes_per_token(_GEOMETRY, "int8") == 112066560 / 256 / 32


def test_arithmetic_is_only_what_the_cpu_has() -> None:
    assert cpu_dtypes({"avx2", "fma"}) == ("f32",)
    assert cpu_dtypes({"avx2", "amx_bf16"}) == ("f32", "bf16")
    assert cpu_dtypes(set()) == ("f32", "bf16", "f16")


def test_prompt_logprobs_and_a_prefix_cache_exclude_each_other() -> None:
    assert openvino(prefix_cache=False).capabilities().prompt_logprobs
    assert not openvino(prefix_cache=True).capabilities().prompt_logprobs


def test_an_environment_without_openvino_is_an_error_that_says_what_to_install(tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", with_pip=False)
    python = tmp_path / "bare" / "bin" / "python"
    backend = openvino(python=str(python))
    with pytest.raises(
        EngineError, match=r"bare/bin/python lacks openvino.*harness\.engines action=install engine=openvino"
    ):
        backend.check(_MODEL)
    assert backend.versions() == {}


def test_versions_are_those_of_the_engines_environment(tmp_path: Path) -> None:
    venv.create(tmp_path / "own", with_pip=False)
    (packages,) = (tmp_path / "own" / "lib").glob("python*/site-packages")
    for name in ("openvino", "openvino_genai", "openvino_tokenizers"):
        folder = packages / f"{name}-1.2.3.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2.3\n")
    backend = openvino(python=str(tmp_path / "own" / "bin" / "python"))
    backend.check(_MODEL)
    assert backend.versions() == {
        "openvino": "1.2.3",
        "openvino-genai": "1.2.3",
        "openvino-tokenizers": "1.2.3",
    }
