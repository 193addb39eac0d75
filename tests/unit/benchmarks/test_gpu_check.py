"""benchmarks/gpu_check.py where there is no GPU: it says so, and a CPU compared with itself is exact."""

from dataclasses import replace

import pytest
import torch

from benchmarks import gpu_check


def test_without_a_gpu_it_refuses_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    monkeypatch.setattr("sys.argv", ["gpu_check.py", "--check"])
    assert gpu_check.main() == 2
    said = capsys.readouterr()
    assert not said.out and said.err.count("\n") == 1 and "GPU" in said.err


def test_the_cpu_does_not_differ_from_itself(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(gpu_check, "SETTINGS", [gpu_check.SETTINGS[i] for i in (0, 4, 7)])
    assert [differs for _, differs, _ in gpu_check.differences(torch.device("cpu"))] == [0.0] * 3


def test_the_7b_shape_has_seven_billion_weights_and_small_ones_run(monkeypatch: pytest.MonkeyPatch):
    assert 7.0e9 < gpu_check.shape_weights(gpu_check.SHAPE_7B) < 7.5e9
    monkeypatch.setattr(gpu_check, "_CONTEXT", 32)
    monkeypatch.setattr(gpu_check, "_reading_seconds", lambda device: 1e-10)
    tiny = replace(
        gpu_check.SHAPE_7B, hidden=64, inner=64, layers=1, heads=2, kv_heads=1, head_dim=32, vocabulary=50
    )
    lines = list(gpu_check.speeds(torch.device("cpu"), tiny, 1e12))
    assert len(lines) == 1 + 2 * len(gpu_check._BATCHES)
    (refused,) = gpu_check.speeds(torch.device("cpu"), gpu_check.SHAPE_7B, 10e9)
    assert "not measured" in refused
