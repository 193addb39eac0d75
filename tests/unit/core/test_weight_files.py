import numpy as np
import pytest
from safetensors.numpy import save_file

from harness.core.weight_files import RECKONED, STORED, WeightSize, size_as, stored_size


def test_values_of_every_file_count_in_the_precision_asked_for(tmp_path):
    save_file({"a": np.zeros((3, 5), np.float16)}, tmp_path / "model-1.safetensors", {"format": "pt"})
    save_file({"b": np.zeros(7, np.float32), "c": np.ones((), np.float32)}, tmp_path / "model-2.safetensors")
    assert size_as(tmp_path, "f32") == WeightSize(4 * (15 + 7 + 1), RECKONED)
    assert size_as(tmp_path, "bf16") == WeightSize(2 * (15 + 7 + 1), RECKONED)


@pytest.mark.parametrize(
    "content", [b"", b"\xff" * 8, b"\x02\0\0\0\0\0\0\0[]", b'\x09\0\0\0\0\0\0\0{"a": {}}']
)
def test_nobody_guesses_at_files_that_cannot_be_read(tmp_path, content):
    (tmp_path / "model.safetensors").write_bytes(content)
    assert size_as(tmp_path, "f32") is None


def test_nobody_guesses_at_a_precision_without_a_size_or_a_folder_without_weights(tmp_path):
    assert size_as(tmp_path, "f32") is None
    save_file({"a": np.zeros(4, np.float32)}, tmp_path / "model.safetensors")
    assert size_as(tmp_path, "auto") is None
    assert stored_size(tmp_path, "*.onnx") is None


def test_stored_weights_are_the_files_an_engine_reads(tmp_path):
    for name, size in (("model.onnx", 10), ("model.onnx.data", 300), ("tokenizer.json", 5000)):
        (tmp_path / name).write_bytes(bytes(size))
    assert stored_size(tmp_path, "*.onnx", "*.onnx.data") == WeightSize(310, STORED)
    assert stored_size(tmp_path / "model.onnx") == WeightSize(10, STORED)
