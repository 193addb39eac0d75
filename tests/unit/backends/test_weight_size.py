"""What each adapter knows of the weights before it runs, and whether its KV pool is taken at the start."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from backends.base import Backend
from backends.kvcompress.model.size import bytes_held
from backends.onnxruntime.export import exported
from backends.openvino.export import exported as exported_for_openvino
from harness.core.geometry import ModelGeometry
from harness.core.model_store import ModelFiles
from harness.core.weight_files import RECKONED, STORED, WeightSize
from tests.support.backends import endpoint, kvcompress, onnxruntime, openvino, sglang, vllm

_GEOMETRY = ModelGeometry(layers=2, heads=2, kv_heads=1, head_dim=8, vocabulary=64, context_length=8192)


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModelFiles:
    """100 values in bfloat16, as far as a header says."""
    monkeypatch.setenv("INFERENCE_HARNESS_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "model"
    folder.mkdir()
    save_file(
        {"a": np.zeros((10, 9), np.float16), "b": np.zeros(10, np.float16)}, folder / "model.safetensors"
    )
    return ModelFiles("tiny", folder, folder, _GEOMETRY, "0" * 64)


@pytest.mark.parametrize("backend", [vllm(), sglang()])
def test_engines_that_load_every_value_keep_it_in_their_arithmetic(
    model: ModelFiles, backend: Backend
) -> None:
    assert backend.options.dtype == "f32"
    assert backend.weight_size(model) == WeightSize(400, RECKONED)
    backend.options = replace(backend.options, dtype="bf16")  # type: ignore[type-var]
    assert backend.weight_size(model) == WeightSize(200, RECKONED)


def test_weights_that_the_library_quantises_are_not_guessed(model: ModelFiles) -> None:
    assert vllm(weight_dtype="fp8").weight_size(model) is None
    assert kvcompress().weight_size(model) is None  # it says so while it runs


def test_libraries_that_read_an_export_have_its_size(model: ModelFiles) -> None:
    gguf = model.weights / "model.gguf"
    gguf.write_bytes(bytes(1234))
    assert openvino().weight_size(replace(model, weights=gguf)) == WeightSize(1234, STORED)
    for folder, name in (
        (exported_for_openvino(model, "int8"), "openvino_model.bin"),
        (exported(model, "f32", None), "model.onnx.data"),
    ):
        folder.mkdir(parents=True)
        (folder / name).write_bytes(bytes(77))
    assert openvino(weight_dtype="int8").weight_size(model) == WeightSize(77, STORED)
    assert onnxruntime().weight_size(model) == WeightSize(77, STORED)


def test_of_a_running_server_nothing_is_known(model: ModelFiles) -> None:
    address = "http://127.0.0.1:1"
    assert vllm(base_url=address).weight_size(model) is None
    assert endpoint(base_url=address).weight_size(model) is None
    assert endpoint(base_url=address).capabilities().kv_pool_touched is None


def test_only_engines_whose_pool_is_written_at_the_start_say_so() -> None:
    touched = {
        backend.options.name: backend.capabilities().kv_pool_touched
        for backend in (vllm(), sglang(), onnxruntime(), openvino(), kvcompress())
    }
    assert [touched[name] for name in ("vllm", "sglang", "onnxruntime", "openvino", "kvcompress")] == [
        True, True, True, False, False,
    ]  # fmt: skip
    assert kvcompress(kernel="torch").capabilities().kv_pool_touched is True


def test_what_is_held_once_is_counted_once() -> None:
    one, half = torch.zeros(10, 4), np.zeros(6, np.int8)
    assert bytes_held((one, (one[:5], half), half, None, 3)) == 160 + 6
