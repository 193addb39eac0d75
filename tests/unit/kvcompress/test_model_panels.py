"""The compiled matrix product against one in float64, over numbers of tokens, odd shapes and stored types."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.kvcompress.model import panels
from backends.kvcompress.model.panels import Panels, multiply, panels_of

FLOATS = [torch.bfloat16, torch.float16, torch.float32]


def matrix(rows: int, columns: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))


def assert_product(inputs: torch.Tensor, held: Panels, weight: torch.Tensor, threads: int = 1) -> None:
    """Within what a sum of so many float32 products is known to."""
    found = multiply(inputs, held, threads)
    truth = inputs.double() @ weight.double().T
    bound = 1e-6 * (inputs.double().abs() @ weight.double().abs().T)
    assert found.dtype == torch.float32 and found.is_contiguous() and found.shape == truth.shape
    assert ((found - truth).abs() <= bound).all()


@pytest.mark.parametrize("dtype", FLOATS)
@given(tokens=st.integers(1, 40), rows=st.integers(1, 50), columns=st.integers(1, 37), seed=st.integers(0, 9))
@settings(max_examples=60)
def test_product_of_any_shape(dtype: torch.dtype, tokens: int, rows: int, columns: int, seed: int) -> None:
    weight = matrix(rows, columns, seed).to(dtype)
    assert_product(matrix(tokens, columns, seed + 1), panels_of(weight), weight)


@pytest.mark.parametrize("tokens", [1, 16, 21])
def test_whole_numbers_are_scaled_by_row(tokens: int) -> None:
    weight = torch.randint(-127, 128, (33, 24), dtype=torch.int8, generator=torch.Generator().manual_seed(2))
    scales = torch.linspace(0.1, 2.0, 33)
    assert_product(matrix(tokens, 24), panels_of(weight, scales), weight * scales[:, None])


@pytest.mark.parametrize("tokens", [1, 5, 32])
def test_threads_share_the_panels(tokens: int) -> None:
    weight = matrix(40, 24).bfloat16()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(panels, "_WORTH_SHARING", 0)
        assert_product(matrix(tokens, 24, 1), panels_of(weight), weight, threads=2)


@pytest.mark.parametrize(
    ("tokens", "size", "threads"),
    [(1, 576 * 3072, 1), (8, 576 * 3072, 1), (256, 576 * 960, 2), (1, 576 * 49152, 2), (1, 4096 * 4096, 2)],
)
def test_small_products_wake_nobody(tokens: int, size: int, threads: int) -> None:
    assert panels.threads_for(tokens, size, 2) == threads


def test_rows_of_a_strided_view_are_read_as_they_are() -> None:
    weight = matrix(16, 12)
    wide = matrix(3, 24, 1)
    assert_product(wide[:, 12:], panels_of(weight), weight)
    assert_product(wide[:1, 12:], panels_of(weight), weight)


def test_panels_take_the_bytes_of_their_type() -> None:
    assert panels_of(matrix(32, 10).bfloat16()).stack.nbytes == 32 * 10 * 2
    assert panels_of(matrix(33, 10)).stack.nbytes == 48 * 10 * 4
