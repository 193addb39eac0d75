"""A linear map of the model, by whichever way its device multiplies fastest."""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch.nn.functional import linear

from backends.kvcompress.model.panels import Panels, multiply, panels_of


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


def linear_map(weight: torch.Tensor, bias: torch.Tensor | None) -> Linear:
    """The map of weight [out, in] (on a CPU in its stored type), with as many threads as PyTorch is told now."""
    if weight.device.type != "cpu":
        return DenseLinear(weight, bias)
    return PanelLinear(panels_of(weight), bias, torch.get_num_threads())
