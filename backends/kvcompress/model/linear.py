"""A linear map of the model, by whichever way its device multiplies fastest."""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch.nn.functional import linear

from backends.kvcompress.model.panels import Panels, multiply, panels_of
from harness.core.errors import UsageError


class Linear(Protocol):
    """inputs [T, in] -> [T, out], contiguous."""

    def __call__(self, inputs: torch.Tensor) -> torch.Tensor:
        """Bias included, in the compute type."""
        ...


@dataclass(frozen=True, slots=True)
class DenseLinear:
    """PyTorch's own product: weight [out, in], bias [out] or None."""

    weight: torch.Tensor
    bias: torch.Tensor | None

    def __call__(self, inputs: torch.Tensor) -> torch.Tensor:
        """See `Linear`."""
        return linear(inputs, self.weight, self.bias)


@dataclass(frozen=True, slots=True)
class PanelLinear:
    """On a CPU: weights in the type that the model's file stores them in, products and sums in float32."""

    weight: Panels
    bias: torch.Tensor | None
    threads: int

    def __call__(self, inputs: torch.Tensor) -> torch.Tensor:
        """See `Linear`."""
        out = multiply(inputs, self.weight, self.threads)
        return out if self.bias is None else out.add_(self.bias)


def linear_map(weight: torch.Tensor, bias: torch.Tensor | None, rounded: bool) -> Linear:
    """The map of weight [out, in] (on a CPU in its stored type), with as many threads as PyTorch is told now.

    rounded: to int8, on a CPU; raises UsageError elsewhere.
    """
    if weight.device.type != "cpu":
        if rounded:
            raise UsageError("Weights in int8 are computed on a CPU alone. Use backend.weight_dtype=null.")
        return DenseLinear(weight, bias)
    held = panels_of(*rounded_rows(weight)) if rounded else panels_of(weight)
    return PanelLinear(held, bias, torch.get_num_threads())


def rounded_rows(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """weight [out, in] as int8 and the scales float32 [out] of its rows: even steps to the row's largest magnitude.

    Only weights are rounded, activations are not (what LLM.int8, Dettmers et al. 2022, calls vector-wise absmax, for
    one operand).
    """
    values = weight.float()
    scales = values.abs().amax(1).div_(127).clamp_min_(torch.finfo(torch.float32).tiny)
    return (values / scales[:, None]).round_().to(torch.int8), scales
