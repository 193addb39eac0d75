"""Rotary positions with their scalings: which pairs of a head turn how fast, and the turning.

Source: Su et al. 2021 (RoFormer), in the layout of Hugging Face's models, where coordinate i of a head's first half
turns together with coordinate i of its second half.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from harness.core.errors import ModelError

ROPE_KEYS = ("rope_theta", "rope_scaling", "rope_parameters")
_THETA = 10_000.0  # RoFormer's, for files that leave it out
_KEYS = {
    "default": (),
    "linear": ("factor",),
    "dynamic": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
    "yarn": (
        "factor", "original_max_position_embeddings", "attention_factor", "beta_fast", "beta_slow", "mscale",
        "mscale_all_dim", "truncate",
    ),
}  # fmt: skip
_NAMES = ("rope_type", "type", "rope_theta")


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """theta: base of the wavelengths. kind: a scaling's name. settings: its own, as config.json has them."""

    theta: float
    kind: str
    settings: Mapping[str, Any]


def read_rope(config: Mapping[str, Any]) -> RopeConfig:
    """What config.json says, in its older keys (rope_theta, rope_scaling) or its newer one (rope_parameters).

    Raises ModelError for a scaling, or a setting of one, that is not computed here.
    """
    given = config.get("rope_scaling") or config.get("rope_parameters") or {}
    theta = given.get("rope_theta") or config.get("rope_theta") or _THETA
    kind = given.get("rope_type") or given.get("type") or "default"
    if kind not in _KEYS:
        raise ModelError(
            f"RoPE scaling {kind!r} is not supported. Choose a model with one of {', '.join(_KEYS)}."
        )
    settings = {key: value for key, value in given.items() if key not in _NAMES and value is not None}
    if settings.get("partial_rotary_factor") == 1.0:
        del settings["partial_rotary_factor"]
    if unknown := sorted(settings.keys() - {*_KEYS[kind]}):
        raise ModelError(
            f"RoPE scaling {kind!r} with {', '.join(unknown)} is not supported. Choose another model."
        )
    if kind in ("llama3", "yarn"):
        settings.setdefault("original_max_position_embeddings", config["max_position_embeddings"])
    needed = _KEYS[kind][:4] if kind == "llama3" else _KEYS[kind][:1]
    if missing := [key for key in needed if key not in settings]:
        raise ModelError(
            f"RoPE scaling {kind!r} lacks {', '.join(missing)}. Take config.json from its source again."
        )
    return RopeConfig(float(theta), kind, settings)


class RotaryPositions:
    """The angles of one model; fulfils `contracts.Rope`.

    scale: what queries and keys are multiplied by besides (YaRN's attention factor, else 1); `rotate` leaves it out,
    so that turning back and forth changes no length.
    """

    def __init__(self, config: RopeConfig, head_dim: int, device: torch.device) -> None:
        frequencies, self.scale = inverse_frequencies(config, head_dim)
        self._frequencies = frequencies.to(device)

    def tables(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """positions [...] -> cosines and sines, float32 [..., D], the sines of the first half negated."""
        angles = positions.to(torch.float32).unsqueeze(-1) * self._frequencies
        sines = angles.sin()
        return torch.cat((angles, angles), -1).cos_(), torch.cat((-sines, sines), -1)

    def rotate(self, vectors: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """vectors [..., D] turned to positions broadcast to [...]; negative positions turn back."""
        cosines, sines = self.tables(positions)
        return turned(vectors, cosines.to(vectors.dtype), sines.to(vectors.dtype))


def turned(vectors: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
    """vectors [..., D] turned by `RotaryPositions.tables`, which broadcast to them."""
    return torch.mul(vectors, cosines).addcmul_(vectors.roll(vectors.shape[-1] // 2, -1), sines)


def inverse_frequencies(config: RopeConfig, head_dim: int) -> tuple[torch.Tensor, float]:
    """Radians per position of each pair, float32 [head_dim / 2], and the factor on queries and keys.

    "dynamic" scales only beyond the length that the model was trained for, which `DecoderConfig.window` refuses.
    """
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
    plain = 1.0 / config.theta**exponents
    if config.kind == "linear":
        return plain / config.settings["factor"], 1.0
    if config.kind == "llama3":
        return _llama3(plain, config.settings), 1.0
    if config.kind == "yarn":
        return _yarn(plain, config, head_dim), _yarn_scale(config.settings)
    return plain, 1.0


def _llama3(plain: torch.Tensor, settings: Mapping[str, Any]) -> torch.Tensor:
    """Llama 3.1: long waves are stretched by `factor`, short ones kept, a ramp between the two."""
    factor, low, high = (settings[key] for key in ("factor", "low_freq_factor", "high_freq_factor"))
    turns = settings["original_max_position_embeddings"] * plain / (2 * math.pi)
    kept = ((turns - low) / (high - low)).clamp(0, 1)
    return (1 - kept) * plain / factor + kept * plain


def _yarn(plain: torch.Tensor, config: RopeConfig, head_dim: int) -> torch.Tensor:
    """YaRN (Peng et al. 2023): the ramp runs over the pairs' indices, from beta_fast turns to beta_slow."""
    settings = config.settings
    trained = settings["original_max_position_embeddings"]

    def pair_with(turns: float) -> float:
        return head_dim * math.log(trained / (turns * 2 * math.pi)) / (2 * math.log(config.theta))

    low, high = pair_with(settings.get("beta_fast") or 32), pair_with(settings.get("beta_slow") or 1)
    if settings.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    width = (high - low) or 0.001
    stretched = ((torch.arange(head_dim // 2, dtype=torch.float32) - low) / width).clamp(0, 1)
    return stretched * plain / settings["factor"] + (1 - stretched) * plain


def _yarn_scale(settings: Mapping[str, Any]) -> float:
    if "attention_factor" in settings:
        return float(settings["attention_factor"])

    def grown(mscale: float) -> float:
        return 0.1 * mscale * math.log(settings["factor"]) + 1.0 if settings["factor"] > 1 else 1.0

    if settings.get("mscale") and settings.get("mscale_all_dim"):
        return grown(settings["mscale"]) / grown(settings["mscale_all_dim"])
    return grown(1.0)
