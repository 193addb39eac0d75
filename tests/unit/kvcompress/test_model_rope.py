"""Rotary positions against transformers' frequencies and against the definition by complex numbers."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from backends.kvcompress.model.rope import RopeConfig, RotaryPositions, inverse_frequencies, read_rope
from tests.support.tiny_models import SIZES

CPU = torch.device("cpu")
SCALINGS: list[dict[str, Any]] = [
    {"rope_type": "linear", "factor": 3.0},
    {"rope_type": "dynamic", "factor": 3.0},
    {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
     "original_max_position_embeddings": 64},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
    {"rope_type": "yarn", "factor": 4.0},
    {"rope_type": "yarn", "factor": 4.0, "beta_fast": 16.0, "beta_slow": 2.0, "truncate": False},
    {"rope_type": "yarn", "factor": 40.0, "mscale": 0.7, "mscale_all_dim": 1.2},
    {"rope_type": "yarn", "factor": 4.0, "attention_factor": 0.9},
]  # fmt: skip


@pytest.mark.parametrize("scaling", SCALINGS, ids=lambda scaling: "-".join(map(str, scaling.values())))
def test_frequencies_are_those_of_transformers(scaling: dict[str, Any]) -> None:
    parameters = {"rope_theta": 500000.0, **scaling}
    theirs = LlamaConfig(**{**SIZES, "head_dim": 64, "rope_parameters": dict(parameters)})
    expected, scale = ROPE_INIT_FUNCTIONS[scaling["rope_type"]](theirs, CPU)
    rope = read_rope({"rope_parameters": parameters, "max_position_embeddings": 256})
    found, our_scale = inverse_frequencies(rope, 64)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=0)
    assert our_scale == pytest.approx(scale)


def test_the_older_keys_say_the_same() -> None:
    settings = {"factor": 4.0, "original_max_position_embeddings": 64}
    old = {"rope_theta": 1e6, "rope_scaling": {"type": "yarn", **settings}, "max_position_embeddings": 256}
    new = {
        "rope_parameters": {"rope_type": "yarn", "rope_theta": 1e6, **settings},
        "max_position_embeddings": 256,
    }
    assert read_rope(old) == read_rope(new)


@given(position=st.integers(0, 100_000), seed=st.integers(0, 99))
def test_turning_is_a_complex_product(position: int, seed: int) -> None:
    rope = RotaryPositions(RopeConfig(10000.0, "default", {}), 8, CPU)
    vector = torch.randn(8, generator=torch.Generator().manual_seed(seed))
    angles = np.float32(position) * np.float32(10000.0) ** -(
        np.arange(0, 8, 2, dtype=np.float32) / np.float32(8)
    )
    turned = (vector[:4].numpy() + 1j * vector[4:].numpy()) * np.exp(1j * angles.astype(np.float64))
    found = rope.rotate(vector, torch.tensor(position)).numpy()
    # An angle of 100,000 radians in float32 is known to 0.004.
    np.testing.assert_allclose(found, np.concatenate((turned.real, turned.imag)), atol=1e-5 + 1e-7 * position)


@given(positions=st.lists(st.integers(0, 8191), min_size=3, max_size=3))
def test_negative_positions_turn_back(positions: list[int]) -> None:
    yarn = {"factor": 4.0, "original_max_position_embeddings": 64}
    rope = RotaryPositions(RopeConfig(10000.0, "yarn", yarn), 16, CPU)
    vectors = torch.randn(2, 3, 16, generator=torch.Generator().manual_seed(0))
    there = torch.tensor(positions)
    back = rope.rotate(rope.rotate(vectors, there), -there)
    torch.testing.assert_close(back, vectors, rtol=1e-4, atol=1e-4)
    assert rope.scale > 1
