"""The 8-bit float e4m3 without infinities (Micikevicius et al., "FP8 formats for deep learning", arXiv:2209.05433).

Sign, 4 bits of exponent (bias 7), 3 of mantissa; the largest is 448, bytes 0x7F and 0xFF are NaN.
"""

import torch

LARGEST = 448.0


def _magnitude(code: int) -> float:
    exponent, mantissa = code >> 3, code & 7
    return (mantissa / 8) * 2.0**-6 if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 7)


def table(device: torch.device) -> torch.Tensor:
    """float32 [256]: what each byte stands for."""
    magnitudes = [*(_magnitude(code) for code in range(127)), float("nan")]
    return torch.tensor(magnitudes + [-m for m in magnitudes], dtype=torch.float32, device=device)


def encode(values: torch.Tensor) -> torch.Tensor:
    """The nearest byte, ties to the even one, what is larger than 448 to 448. Values are finite."""
    magnitudes = table(values.device)[:127]
    halfway = (magnitudes[:-1] + magnitudes[1:]) / 2
    wanted = values.abs().contiguous()
    below = torch.searchsorted(halfway, wanted)
    tie = torch.cat([halfway, halfway.new_tensor([torch.inf])])[below] == wanted
    code = below + (tie & (below % 2 == 1))
    return (code + 128 * torch.signbit(values)).to(torch.uint8)
