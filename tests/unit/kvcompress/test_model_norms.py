"""The compiled norm against its definition in float64."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from backends.kvcompress.model.norms import normed


@given(
    tokens=st.integers(1, 5),
    heads=st.integers(1, 3),
    size=st.integers(1, 40),
    scale=st.sampled_from([1e-6, 1.0, 1e4]),
)
def test_norm_over_the_last_dimension(tokens: int, heads: int, size: int, scale: float) -> None:
    generator = torch.Generator().manual_seed(size)
    wide = scale * torch.randn(tokens, heads + 1, size, generator=generator)
    weight = torch.randn(size, generator=generator)
    values = wide[:, 1:]  # a view, as the heads of queries and keys are
    found = normed(values, weight, 1e-5)
    exact = values.double()
    truth = exact / (exact.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight.double()
    assert found.is_contiguous()
    torch.testing.assert_close(found.double(), truth, rtol=1e-5, atol=1e-6)
