"""The harness's side of OpenVINO: what it refuses, and what it starts."""

import sys
import venv
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from backends.cpu import cpu_dtypes
from backends.openvino.devices import check_device
from backends.openvino.export import EXPORTER, export, exported
from backends.openvino.precision import kv_bytes_per_token
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
        ({"device": "cuda"}, r"backend\.device=cuda.*cpu or gpu or npu"),
        ({"device": "npu", "dtype": "f32"}, r"backend\.dtype=f32.*on npu.*f16"),
        ({"weight_dtype": "fp8"}, r"backend\.weight_dtype=fp8.*f32 or f16 or int8 or int4"),
        ({"eviction_keep": 1000}, r"backend\.eviction_keep=1000.*multiple of 32, such as 992"),
        (
            {"eviction_keep": 100},
            r"backend\.eviction_keep=100: .*such as 192",
        ),  # 32 + 128 stay whatever comes
        (
            {"eviction_keep": 512, "eviction_start": 0},
            r"backend\.eviction_start=0.*multiple of 32, such as 32",
        ),
        ({"eviction_keep": 160}, r"backend\.eviction_keep=160.*take 160 already.*at least 192"),
        ({"eviction_keep": 512, "eviction_scores": "max"}, r"backend\.eviction_scores=max.*norm_sum or sum"),
        ({"eviction_start": 64}, r"eviction_start=64 does nothing without backend\.eviction_keep"),
        ({"eviction_scores": "sum"}, r"eviction_scores=sum does nothing"),
        ({"eviction_keep": 512, "prefix_cache": True}, r"eviction_keep.*prefix_cache=true"),
        ({"api": "grpc"}, "completions or chat"),
        ({"python": "/no/such/python"}, r"backend\.python=/no/such/python"),
    ],
)
def test_what_it_cannot_honour_is_named_with_the_choices(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        openvino(**changes).check(_MODEL)


def test_a_folder_of_plain_weights_is_exported_with_weights_that_somebody_chose(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r"say with what weights, backend\.weight_dtype=f32 or f16 or int8 or int4"
    ):
        openvino().check(replace(_MODEL, weights=tmp_path))


def test_an_export_keeps_its_weights(tmp_path: Path) -> None:
    (tmp_path / "openvino_model.xml").touch()
    model = replace(_MODEL, weights=tmp_path)
    openvino().check(model)
    with pytest.raises(UsageError, match=r"backend\.weight_dtype=int8.*exported already"):
        openvino(weight_dtype="int8").check(model)


def test_other_weights_need_the_exporter_or_what_it_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INFERENCE_HARNESS_CACHE", str(tmp_path))
    backend = openvino(weight_dtype="int8")
    with pytest.raises(EngineError, match=r"action=install engine=openvino with=export"):
        backend.check(_MODEL)
    openvino(weight_dtype="int8", install=True).check(_MODEL)
    made = exported(_MODEL, "int8")
    assert made != exported(_MODEL, "int4") != exported(replace(_MODEL, sha256="1" * 64), "int4")
    made.mkdir(parents=True)
    backend.check(_MODEL)
    backend.prepare(_MODEL, lambda line: None)
    spec = backend.launch(_MODEL, 1234, 1)
    assert spec is not None
    assert spec.argv[spec.argv.index("--model") + 1] == str(made)


@pytest.mark.parametrize(
    ("asked", "found", "there"),
    [
        ("gpu", "CPU GPU", True),
        ("gpu.0", "CPU GPU", True),
        ("gpu", "CPU GPU.0 GPU.1", True),
        ("gpu.1", "CPU GPU.0 GPU.1", True),
        ("gpu.1", "CPU GPU", False),
        ("gpu.2", "CPU GPU.0 GPU.1", False),
        ("npu", "CPU GPU", False),
        ("npu", "CPU NPU", True),
        ("cpu", "", True),
    ],
)
def test_a_device_is_one_that_the_library_finds(tmp_path: Path, asked: str, found: str, there: bool) -> None:
    python = tmp_path / "python"  # answers as an engine's environment on such a machine
    python.write_text(f"#!/bin/sh\necho {found}\n")
    python.chmod(0o755)
    if there:
        check_device(str(python), asked)
        return
    with pytest.raises(UsageError, match=rf"backend\.device={asked}.*finds cpu or gpu"):
        check_device(str(python), asked)


def test_what_must_stand_beside_every_figure() -> None:
    assert openvino().capabilities().caveats == ()
    assert openvino(device="gpu.1").capabilities().caveats == ("OpenVINO on a GPU: not verified on hardware",)
    evicting = openvino(eviction_keep=512).capabilities()
    assert not evicting.logprobs_see_eviction
    assert evicting.caveats == ("KV eviction, which perplexity does not see",)


def test_eviction_reaches_the_engine_only_where_it_is_asked_for() -> None:
    asked = openvino(eviction_keep=512, eviction_scores="sum")
    asked.check(_MODEL)
    found = []
    for backend in (openvino(), asked):
        spec = backend.launch(_MODEL, 1, 1)
        assert spec is not None
        given = orjson.loads(spec.argv[spec.argv.index("--options") + 1])
        found.append(EngineConfig.from_options(_MODEL.weights, (), given).own)
    assert found == [
        None,
        {"eviction": {"keep": 512, "start": 32, "recent": 128, "scores": "sum"}},
    ]


def test_the_command_carries_every_setting_and_the_engine_side_takes_them_all() -> None:
    options = {"python": sys.executable, "threads": None, "model_name": "served", "extra_args": ["--more"]}
    spec = openvino(**options).launch(_MODEL, 1234, 5)
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


_EXPORTER = """#!/bin/sh
for folder; do :; done
echo "Loading weights: 100%"
case "$*" in *" --weight-format int4 "*) echo "a word of $0"; exit 3;; esac
echo "$*" > "$folder/openvino_model.xml"
"""


def test_an_export_is_made_once_and_a_failed_one_leaves_nothing_but_its_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an interpreter that writes its arguments where Optimum writes a graph; the engine suite runs Optimum."""
    monkeypatch.setenv("INFERENCE_HARNESS_CACHE", str(tmp_path / "cache"))
    EXPORTER.python().parent.mkdir(parents=True)
    EXPORTER.python().write_text(_EXPORTER)
    EXPORTER.python().chmod(0o755)
    EXPORTER.complete.touch()
    (tmp_path / "model.safetensors").touch()
    model = replace(_MODEL, weights=tmp_path)
    folder = export(model, "int8", lambda line: None)
    told = (folder / "openvino_model.xml").read_text()
    assert f"--model {tmp_path} " in told
    assert "--weight-format int8 " in told
    (folder / "openvino_model.xml").write_text("as it was")
    assert export(model, "int8", lambda line: None) == folder == exported(model, "int8")
    assert (folder / "openvino_model.xml").read_text() == "as it was"
    with pytest.raises(EngineError, match=r"(?s)status 3.*Loading weights.*a word of"):
        export(model, "int4", lambda line: None)
    assert not exported(model, "int4").exists()
